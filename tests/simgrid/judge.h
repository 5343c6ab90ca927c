#pragma once

#include <cstdint>

#include "dear/algorithm/program.h"
#include "dear/cluster/cluster.h"

// How long a program takes by SimGrid (Casanova et al. 2014, doi:10.1016/j.jpdc.2014.06.008), with an actor
// for each rank and its raw flow model, CM02: no window of TCP, no factors, no traffic of acknowledgements.
namespace dear::judge {

// Ranks behind a link of their own, `ranks_per_node` of them behind a link of their node, nodes on one
// switch.
struct Platform {
  int nodes = 1;
  int ranks_per_node = 1;
  Link inside{};
  Link across{};
  double oversubscription = 1;  // of the switch between nodes
};

Cluster cluster_of(const Platform& platform);  // the same, as DeAR describes it

// `block_bytes` for each block. Runs in a process of its own, since SimGrid knows one simulation in each;
// throws std::runtime_error when that fails.
double simgrid_seconds(const algorithm::Program& program, const Platform& platform,
                       std::uint64_t block_bytes);

}  // namespace dear::judge
