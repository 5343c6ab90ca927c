#include "dear/measure/statistics.h"

#include <algorithm>
#include <cmath>

namespace dear::measure {
namespace {

double quantile(const std::vector<double>& sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

Quantiles quantiles_of(std::vector<double> values) {
  if (values.empty()) {
    return {};
  }
  std::sort(values.begin(), values.end());
  return {.median = quantile(values, 0.5), .p10 = quantile(values, 0.1), .p90 = quantile(values, 0.9)};
}

}  // namespace dear::measure
