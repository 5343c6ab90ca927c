#pragma once

#include <cstdint>
#include <vector>

#include "dear/platform/algorithm/program.h"
#include "dear/platform/cluster/cluster.h"

// When programs end by SimGrid (Casanova et al. 2014, doi:10.1016/j.jpdc.2014.06.008), with an actor for each
// rank.
namespace dear::judge {

// Ranks behind a link of their own, `ranks_per_node` of them behind a link of their node, nodes on one
// switch.
struct Platform {
  int nodes = 1;
  int ranks_per_node = 1;
  Link inside{};
  Link across{};
  int links_per_node = 1;
  double oversubscription = 1;  // of the switch between nodes
};

Cluster cluster_of(const Platform& platform);  // the same, as DeAR describes it

struct Job {
  algorithm::Program program;
  std::uint64_t block_bytes = 0;        // of each block
  std::vector<int> ranks{};             // of its members; empty: all
  std::vector<double> enter_seconds{};  // of its members; empty: 0
};

// When each of some jobs ends that share a platform. Runs in a process of its own, since SimGrid knows one
// simulation in each; throws std::runtime_error when that fails.
std::vector<double> simgrid_seconds(const std::vector<Job>& jobs, const Platform& platform);

}  // namespace dear::judge
