#include "dear/platform/cost/collective_times.h"

#include "dear/platform/cost/ring.h"

namespace dear::cost {

CollectiveTimes ring_times(const Link& link, int ranks) {
  return {
      .ranks = ranks,
      .reduce_scatter = [=](std::int64_t bytes) { return ring_reduce_scatter_seconds(link, ranks, bytes); },
      .all_gather = [=](std::int64_t bytes) { return ring_all_gather_seconds(link, ranks, bytes); },
      .all_reduce = [=](std::int64_t bytes) { return ring_all_reduce_seconds(link, ranks, bytes); },
      .broadcast = [=](std::int64_t bytes) { return pipelined_broadcast_seconds(link, ranks, bytes); },
      .message_seconds = ranks > 1 ? link.alpha_seconds : 0};
}

int CollectiveTimes::ranks_of_node() const { return nodes ? nodes->inside.ranks : 1; }

}  // namespace dear::cost
