#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dear/comm/group/request.h"
#include "dear/platform/cluster/network.h"

namespace dear::message_programs {

// The algorithm by which a collective travels, and its segments.
struct AlgorithmChoice {
  // An algorithm of algorithm::algorithms() that has the collective; for what adds up also
  //   "direct"  each rank gets the contributions to its shard from all others, and adds them in one pass;
  //             as many bytes as in a ring, P - 1 messages; the shards of a reduce then go to the root
  //   "gather"  each rank gets all contributions in full and adds them: fewest rounds, P times the bytes
  std::string algorithm{};
  std::string then{};  // of a direct all_reduce: the algorithm of its all-gather; "" for a ring
  std::int64_t segment_bytes = 64 * 1024;
};

// A CollectiveCall holds all on which the choice of an algorithm may depend; it is the same on every rank.
struct CollectiveCall {
  Collective collective = Collective::all_reduce;
  std::int64_t bytes = 0;  // of the whole vector
  int ranks = 1;
  bool exact = false;   // in the order of ranks: only "direct" and "gather" add up in it
  bool shares = false;  // shards are unequal
};
using Choose = std::function<AlgorithmChoice(const CollectiveCall&)>;

// All choices for a collective. Barriers and all-to-alls have one.
std::vector<AlgorithmChoice> algorithm_choices(const CollectiveCall& call);
// The seconds of a choice by the alpha-beta model.
double modelled_seconds(const CollectiveCall& call, const AlgorithmChoice& choice, const Link& link);
// The quickest choice by this model. Among choices within a twentieth of it the first is taken, which rests
// on the fewest assumptions: neighbours in a ring, or whole messages between pairs.
AlgorithmChoice choose_by_model(const CollectiveCall& call, const Link& link);

}  // namespace dear::message_programs
