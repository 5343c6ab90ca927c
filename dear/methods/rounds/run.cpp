#include "dear/methods/rounds/run.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/rounds/vectors.h"

namespace dear::methods::rounds {
namespace {

constexpr double kDiverged = 1e6;
constexpr double kProgress = 0.9;
constexpr std::int64_t kPatience = 1000;  // rounds

}  // namespace

std::string_view name_of(End end) {
  switch (end) {
    case End::reached:
      return "reached";
    case End::stalled:
      return "stalled";
    case End::diverged:
      return "diverged";
    case End::ended:
      break;
  }
  return "ended";
}

Outcome run_to(Rounds& rounds, std::span<const double> optimum, const Target& target,
               const std::function<void(const Milestone&)>& on_milestone) {
  const double first = squared_distance(rounds.model(), optimum);
  if (first == 0)
    throw ConfigError("the run starts at the optimum, so no error is relative: start elsewhere");
  Outcome outcome;
  double best = 1;
  std::int64_t best_at = 0, due = 1;
  const auto keep = [&] {
    outcome.milestones.push_back(outcome.last);
    if (on_milestone) on_milestone(outcome.last);
  };
  for (std::int64_t made = 1; made <= target.rounds && rounds.next(); ++made) {
    outcome.last = {rounds.counts(), squared_distance(rounds.model(), optimum) / first};
    if (made >= due) {
      keep();
      due = made + std::max<std::int64_t>(1, made * 3 / 100);
    }
    if (outcome.last.error <= kProgress * best) {
      best = outcome.last.error;
      best_at = made;
    }
    outcome.end = outcome.last.error <= target.error                                  ? End::reached
                  : outcome.last.error > kDiverged                                    ? End::diverged
                  : target.error > 0 && made - best_at > std::max(best_at, kPatience) ? End::stalled
                                                                                      : End::ended;
    if (outcome.end != End::ended) break;
  }
  keep();
  outcome.traffic = rounds.traffic();
  outcome.control_sum = rounds.control_sum();
  return outcome;
}

}  // namespace dear::methods::rounds
