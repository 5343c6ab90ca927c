#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "dear/platform/cluster/network.h"

namespace dear::cost {

struct NodeTimes;

// How long collectives take on some network, by the bytes of the whole vector; all that a policy needs to
// know of machines.
struct CollectiveTimes {
  using Seconds = std::function<double(std::int64_t bytes)>;
  int ranks = 1;
  Seconds reduce_scatter;
  Seconds all_gather;
  Seconds all_reduce;
  Seconds broadcast;
  double launch_seconds = 0;   // Software of the cluster: contained in the times above
  double hold_seconds = 0;     // likewise: contained in none
  double buffer_seconds = 0;   // likewise
  double message_seconds = 0;  // a message without bytes between the two ranks that are farthest apart
  // Null where no two ranks share a node.
  std::shared_ptr<const NodeTimes> nodes = nullptr;

  // Ranks that have a shard each of what is sharded inside nodes.
  [[nodiscard]] int ranks_of_node() const;
};

// Times of a vector that is spread over the ranks of a node, every node alike.
struct NodeTimes {
  CollectiveTimes inside;  // of the ranks of one node
  // Times of one rank from each node, which hold the same part; all parts at once, over links that the ranks
  // of a node share. By the bytes of the whole vector, all parts together.
  CollectiveTimes across;
};

// Rings on a flat network, see ring.h.
CollectiveTimes ring_times(const Link& link, int ranks);

}  // namespace dear::cost
