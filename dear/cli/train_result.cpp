#include "dear/cli/train_result.h"

#include <algorithm>
#include <cmath>

namespace dear::cli {
namespace {

double quantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) {
    return {};
  }
  std::sort(values.begin(), values.end());
  return {.median = quantile(values, 0.5), .p10 = quantile(values, 0.1), .p90 = quantile(values, 0.9)};
}

IterationTimes summarize_iterations(const std::vector<double>& iteration_seconds,
                                    const std::vector<double>& exposed_seconds) {
  const std::size_t count = iteration_seconds.size();
  if (count == 0) {
    return {};
  }
  const std::size_t warm_up = std::min(std::clamp<std::size_t>(count / 10, 2, 10), count - 1);
  std::vector<double> iterations, exposed, compute;
  for (std::size_t i = warm_up; i < count; ++i) {
    iterations.push_back(iteration_seconds[i]);
    exposed.push_back(exposed_seconds[i]);
    compute.push_back(iteration_seconds[i] - exposed_seconds[i]);
  }
  return {.iteration_seconds = spread_of(iterations),
          .compute_seconds = spread_of(compute).median,
          .exposed_communication_seconds = spread_of(exposed).median};
}

}  // namespace dear::cli
