#include "dear/systems/train_command/interleaving.h"

#include <algorithm>

namespace dear::train_command {
namespace {

constexpr std::int64_t kStepsOfTurn = 10;
constexpr std::int64_t kUnlike = 2;  // first steps of a turn

std::size_t policy_at(std::size_t place, std::size_t round, std::size_t policies) {
  const bool backwards = round % 2 == 1;
  return ((backwards ? policies - 1 - place : place) + round / 2) % policies;
}

}  // namespace

std::vector<Turn> take_turns(std::size_t policies, std::int64_t steps) {
  const std::int64_t rounds = std::max<std::int64_t>(1, steps / kStepsOfTurn);
  std::vector<Turn> turns;
  for (std::int64_t round = 0; round < rounds; ++round) {
    // The remainder of the division goes to the first rounds, one step each.
    const auto begin_of = [&](std::int64_t r) { return r * (steps / rounds) + std::min(r, steps % rounds); };
    const Range range{begin_of(round), begin_of(round + 1)};
    const bool counts = round > 0 || rounds == 1;
    const Range counted = counts ? counted_in_only_round(range) : Range{range.end, range.end};
    for (std::size_t place = 0; place < policies; ++place) {
      turns.push_back({.policy = policy_at(place, static_cast<std::size_t>(round), policies),
                       .round = static_cast<std::size_t>(round),
                       .steps = range,
                       .counted = counted});
    }
  }
  return turns;
}

Range counted_in_only_round(const Range& steps) {
  return {std::min(steps.begin + kUnlike, steps.end - 1), steps.end};
}

std::vector<Range> counted_steps(const std::vector<Turn>& turns, std::size_t policy) {
  std::vector<Range> counted;
  for (const Turn& turn : turns) {
    if (turn.policy == policy && turn.counted.begin < turn.counted.end) counted.push_back(turn.counted);
  }
  return counted;
}

}  // namespace dear::train_command
