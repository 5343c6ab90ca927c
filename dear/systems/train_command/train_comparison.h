#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dear/systems/train_command/interleaving.h"
#include "dear/systems/train_command/train_result.h"

namespace dear::train_command {

// Computation of policies that differs by more than this part says that the machine was not quiet: each
// policy computes the same.
inline constexpr double kQuietDifference = 0.1;

struct SpeedUp {
  std::string policy;
  Quartiles ratio;  // over rounds: median iteration of the first policy over that of this one, in one round
};

// The outcome of training several policies in turns.
struct Comparison {
  std::size_t rounds = 0;  // in all
  std::size_t counted_rounds = 0;
  std::vector<SpeedUp> speed_ups;  // by policy, the first included
  // Whether computation agreed; if not, a sentence that says where it differed most, and that the speed-ups
  // are not to be trusted. "" when quiet.
  bool quiet = true;
  std::string remark;
};

// Compares the runs of policies that took turns. `runs` has one entry for each policy, with `times` of the
// steps that count; `turns` are what take_turns() made for these runs.
Comparison compare(const std::vector<TrainResult>& runs, const std::vector<Turn>& turns);

}  // namespace dear::train_command
