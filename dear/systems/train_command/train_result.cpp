#include "dear/systems/train_command/train_result.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/units.h"

namespace dear::train_command {
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

std::string text_of(const KfacTroubles& troubles) {
  std::vector<std::string> parts;
  const auto add = [&](std::int64_t count, const char* one, const char* several, const char* what) {
    if (count > 0)
      parts.push_back(
          fmt::format("{} {} {} {}", count, count == 1 ? one : several, count == 1 ? "was" : "were", what));
  };
  add(troubles.given_up_inverses, "inverse", "inverses", "given up");
  add(troubles.nonfinite_factors, "factor", "factors", "not finite");
  add(troubles.raised_dampings, "damping", "dampings", "raised");
  return parts.empty() ? "" : fmt::format("K-FAC: {}", fmt::join(parts, ", "));
}

std::string text_of(const MoeReport& report) {
  return fmt::format(
      "all-to-alls: {} in a step, {}, {} waited for, {:.3f} MB sent; {:.1f} % of choices dropped, "
      "the fullest expert has {:.2f} times the mean\n",
      report.all_to_alls, format_seconds(report.seconds), format_seconds(report.waited_seconds),
      report.sent_bytes / 1e6, 100 * report.dropped_share, report.balance);
}

}  // namespace dear::train_command
