#include "dear/schedule/fusion/chunks.h"
#include "dear/schedule/fusion/eager_order.h"
#include "dear/schedule/policies/rows.h"

namespace dear {
namespace {

struct OrderedChunks {
  std::vector<fusion::TimedChunk> chunks;
  fusion::EagerOrder order;
};

// Buckets travel in chunks if that is quicker than whole, since every chunk adds start-up time. Without times
// they travel as the grouping says.
OrderedChunks best_order(const Workload& workload, const Grouping& grouping,
                         const cost::CollectiveTimes& times) {
  const double compute = workload.forward_seconds() + workload.backward_seconds();
  const auto with = [&](fusion::Cutting cutting) {
    OrderedChunks made{.chunks = fusion::chunks_of(workload, grouping, times, cutting), .order = {}};
    made.order = fusion::eager_order(made.chunks, compute);
    return made;
  };
  OrderedChunks cut = with(fusion::Cutting::in_chunks);
  if (!times.reduce_scatter || compute == 0) return cut;
  OrderedChunks whole = with(fusion::Cutting::whole);
  return cut.order.seconds < whole.order.seconds ? cut : whole;
}

}  // namespace

// [Note: gathering under the backward] The all-gather of a bucket writes its parameters while other layers
// are still in their backward. No backward that reads these parameters sees it. On one rank, the gather
// follows the update of the rank's own shard, the update follows the reduce-scatter, and that follows the
// backward of every layer that uses the bucket. Nor does a rank write or send too early to another rank: a
// reduce-scatter ends on no rank before every rank has begun it, since each rank needs something of all
// others, and no rank begins it before its own backward of all these layers. So when the gather of one rank
// begins, every rank is done with the old parameters, and ranks may even share one copy of them. The schedule
// has edges of its own for this.
Schedule make_dear_eager(const Workload& workload, const Grouping& grouping,
                         const cost::CollectiveTimes& times) {
  Iteration iteration(workload, grouping, "dear-eager");
  const LaneId updates = iteration.add_update_lane();
  const auto [chunks, order] = best_order(workload, grouping, times);
  // An edge needs both its steps, and steps are added in the order of their lane. So updates, whose lane has
  // an order of its own, are added when the first gather needs them.
  std::vector<StepId> scattered(chunks.size()), updated(chunks.size());
  std::size_t next_update = 0;
  std::vector<bool> is_updated(chunks.size(), false);
  for (const auto& [id, half] : order.network) {
    const auto [bucket, bytes] = chunks[id].chunk;
    if (half == fusion::Half::scatter) {
      scattered[id] = iteration.reduce(Collective::reduce_scatter, bucket, bytes);
      continue;
    }
    for (; !is_updated[id]; ++next_update) {
      const std::uint32_t next = order.updates[next_update];
      updated[next] = iteration.update_ahead(chunks[next].chunk.bucket, chunks[next].chunk.bytes, updates,
                                             scattered[next]);
      is_updated[next] = true;
    }
    const StepId gathered = iteration.gather(Payload::parameters, bucket, updated[id], bytes);
    iteration.after_backward(bucket, gathered);
    iteration.publish(bucket, gathered);
  }
  return std::move(iteration).build();
}

Policy dear_eager_policy() {
  return {.name = "dear-eager",
          .summary =
              "dear without a wait between its phases: the idle network gathers what is updated under the "
              "backward already, in an order fixed beforehand",
          .source =
              "DeAR: Zhang et al., ICDCS 2023, arXiv 2302.12445; the order: Carlier, EJOR 1982, "
              "doi:10.1016/S0377-2217(82)80007-6",
          .trains = true,
          .residence = {.optimizer_sharded = true},
          .overlap = Overlap::eager,
          .make = make_dear_eager,
          .usual_grouping = by_size,
          .bound = overlapped_bound};
}

}  // namespace dear
