#include "dear/base/vocabulary/spread.h"

#include <algorithm>
#include <cmath>

namespace dear {
namespace {

double quantile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const double position = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {.median = quantile(values, 0.5), .p10 = quantile(values, 0.1), .p90 = quantile(values, 0.9)};
}

Quartiles quartiles_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {.first = quantile(values, 0.25), .median = quantile(values, 0.5), .third = quantile(values, 0.75)};
}

}  // namespace dear
