#pragma once

#include <cstdint>
#include <functional>

#include "dear/cluster/network.h"

namespace dear::cost {

// How long collectives take on some network, by the bytes of the whole vector; all that a policy needs to
// know of machines.
struct CollectiveTimes {
  using Seconds = std::function<double(std::int64_t bytes)>;
  int ranks = 1;
  Seconds reduce_scatter;
  Seconds all_gather;
  Seconds all_reduce;
  Seconds broadcast;
  double message_seconds = 0;  // a message without bytes between the two ranks that are farthest apart
};

// Rings on a flat network, see ring.h.
CollectiveTimes ring_times(const Link& link, int ranks);

}  // namespace dear::cost
