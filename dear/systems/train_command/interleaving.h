#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/base/vocabulary/range.h"

namespace dear::train_command {

// Some steps of one policy on end, while the other policies of a comparison pause.
struct Turn {
  std::size_t policy = 0;  // index into the policies that are compared
  std::size_t round = 0;   // in each round every policy has one turn
  Range steps;             // that the policy takes in this turn
  Range counted;           // of these, the steps whose times count; empty in a round that warms up
  bool operator==(const Turn&) const = default;
};

// The order in which policies train, until each of `policies` policies has taken `steps` steps, both at
// least 1. A change of the machine's load that lasts longer than a round meets all policies alike.
//
// A turn has about 10 steps, all turns of a round the same number. Rounds differ in their order: it rotates
// by one policy after every second round, and every second round runs backwards, so that each policy is as
// often first, and as often after each other policy, as any. The first 2 steps of a turn do not count: caches
// are cold, and no communication of the step before is left to be hidden. The first round warms up: nothing
// of it counts. The only round, where there is but one, counts.
std::vector<Turn> take_turns(std::size_t policies, std::int64_t steps);

// The steps of a turn that count where its round is the only one.
Range counted_in_only_round(const Range& steps);

// The ranges of steps of one policy that count, in the order of its turns; none is empty.
std::vector<Range> counted_steps(const std::vector<Turn>& turns, std::size_t policy);

}  // namespace dear::train_command
