#include "dear/demo/train_result.h"

#include <algorithm>

namespace dear::demo {
IterationTimes summarize_iterations(const std::vector<double>& iteration_seconds,
                                    const std::vector<double>& exposed_seconds,
                                    const std::vector<Range>& counted) {
  std::vector<double> iterations, exposed, compute;
  for (const Range& range : counted) {
    for (auto i = static_cast<std::size_t>(range.begin); i < static_cast<std::size_t>(range.end); ++i) {
      iterations.push_back(iteration_seconds[i]);
      exposed.push_back(exposed_seconds[i]);
      compute.push_back(iteration_seconds[i] - exposed_seconds[i]);
    }
  }
  return {.iteration_seconds = spread_of(iterations),
          .compute_seconds = spread_of(compute).median,
          .exposed_communication_seconds = spread_of(exposed).median};
}

Range counted_of_run(std::int64_t steps) {
  const std::int64_t warm_up = std::clamp<std::int64_t>(steps / 10, 2, 10);
  return {.begin = std::clamp<std::int64_t>(steps - 1, 0, warm_up), .end = steps};
}

}  // namespace dear::demo
