#include "dear/systems/train_command/train_comparison.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/units.h"

namespace dear::train_command {
namespace {

// The median iteration of a policy in each round that counts.
std::vector<double> by_round(const TrainResult& run, const std::vector<Turn>& turns, std::size_t policy) {
  std::vector<double> medians;
  for (const Range& range : counted_steps(turns, policy)) {
    const auto begin = run.step_seconds.begin();
    medians.push_back(quartiles_of({begin + range.begin, begin + range.end}).median);
  }
  return medians;
}

Quartiles ratios(const std::vector<double>& first, const std::vector<double>& own) {
  std::vector<double> found;
  for (std::size_t round = 0; round < own.size(); ++round) {
    if (own[round] > 0) found.push_back(first[round] / own[round]);
  }
  return quartiles_of(std::move(found));
}

std::string remark_on(const TrainResult& least, const TrainResult& most) {
  return fmt::format(
      "The machine was not quiet: an iteration computed for {} under {} and for {} under {}, though both "
      "compute the same. Do not trust the speed-ups; compare again when nothing else runs here.",
      format_seconds(most.times.compute_seconds), most.policy, format_seconds(least.times.compute_seconds),
      least.policy);
}

}  // namespace

Comparison compare(const std::vector<TrainResult>& runs, const std::vector<Turn>& turns) {
  Comparison comparison{.rounds = turns.back().round + 1, .counted_rounds = counted_steps(turns, 0).size()};
  const std::vector<double> first = by_round(runs.front(), turns, 0);
  for (std::size_t policy = 0; policy < runs.size(); ++policy) {
    comparison.speed_ups.push_back(
        {.policy = runs[policy].policy, .ratio = ratios(first, by_round(runs[policy], turns, policy))});
  }
  const auto [least, most] =
      std::minmax_element(runs.begin(), runs.end(), [](const TrainResult& a, const TrainResult& b) {
        return a.times.compute_seconds < b.times.compute_seconds;
      });
  comparison.quiet = most->times.compute_seconds <= (1 + kQuietDifference) * least->times.compute_seconds;
  if (!comparison.quiet) comparison.remark = remark_on(*least, *most);
  return comparison;
}

}  // namespace dear::train_command
