#pragma once

#include <vector>

#include "dear/platform/algorithm/chunk_plan.h"
#include "dear/platform/cluster/cluster.h"

namespace dear::judge {

// The network of one dimension, innermost first.
struct Wire {
  int size = 1;
  Wiring wiring = Wiring::switched;
  Link link{};
  // A switch over the switch before, into which a member of that has so many links; 0: links for each rank,
  // beside those into other dimensions.
  int links_above = 0;
};

Cluster cluster_of(const std::vector<Wire>& wires);  // the same, as DeAR describes it

// The times at which ranks are through with a plan by SimGrid (judge.h), each from a time of its own on.
// Ranks have an actor for each lane, and a semaphore for each step of each chunk. The way round a ring is the
// shorter one, to the next rank where both are as long.
std::vector<double> simgrid_chunk_seconds(const algorithm::ChunkPlan& plan, const std::vector<Wire>& wires,
                                          const std::vector<double>& enter_seconds);

}  // namespace dear::judge
