#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/channels/channels.h"
#include "dear/platform/cluster/pair_cluster.h"

namespace dear::channels::testing {

// Ranks as threads of this process, in virtual time: messages take none, and the clock jumps to the next
// moment for which a rank waits, once all ranks wait. It begins at the real clock, and does not move with it.
struct VirtualWorld {
  std::vector<std::unique_ptr<Channels>> channels;  // by rank, each for the thread of its rank
  std::function<SteadyTime()> now;                  // for any thread
};
VirtualWorld make_virtual_world(int size);

// A cluster of these links, [from][to].
PairCluster cluster_of_links(PairCluster::Matrix bytes_per_second, PairCluster::Matrix latency_seconds);

}  // namespace dear::channels::testing
