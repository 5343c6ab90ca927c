#include "dear/fusion/chunks.h"
#include "dear/fusion/eager_order.h"
#include "dear/schedule/policy/rows.h"

namespace dear {
namespace {

struct Transport {
  std::vector<fusion::TimedChunk> chunks;
  fusion::EagerOrder order;
};

// In chunks where that is quicker than whole: a chunk more is a start-up more. Where nothing is known of
// times, as the grouping says.
Transport best_transport(const Workload& workload, const Grouping& grouping,
                         const cost::CollectiveTimes& times) {
  const double compute = workload.forward_seconds() + workload.backward_seconds();
  const auto with = [&](fusion::Cutting cutting) {
    Transport made{.chunks = fusion::chunks_of(workload, grouping, times, cutting), .order = {}};
    made.order = fusion::eager_order(made.chunks, compute);
    return made;
  };
  Transport cut = with(fusion::Cutting::in_chunks);
  if (!times.reduce_scatter || compute == 0) return cut;
  Transport whole = with(fusion::Cutting::whole);
  return cut.order.seconds < whole.order.seconds ? cut : whole;
}

}  // namespace

// [Note: gathering under the backward] The all-gather of a bucket writes its parameters, and a backward that
// still reads them must not see that. On one rank it cannot: the gather follows the update of the rank's own
// shard, that the reduce-scatter, and that the backward of every layer that uses the bucket. Nor can a rank
// write to, or send to, another one that is not so far: a reduce-scatter ends on no rank before every rank
// has begun it, since each needs something of all, and no rank begins it before its own backward of all these
// layers. So when one rank's gather begins every rank is done with the old parameters. (Ranks may therefore
// even share one copy of them.) The schedule says it with edges of its own.
Schedule make_dear_eager(const Workload& workload, const Grouping& grouping,
                         const cost::CollectiveTimes& times) {
  Iteration iteration(workload, grouping, "dear-eager");
  const LaneId updates = iteration.add_update_lane();
  const auto [chunks, order] = best_transport(workload, grouping, times);
  // Steps of a lane stand in its order, and an edge needs both its steps; so updates, which stand on another
  // lane than what they wait for and what waits for them, are added in between in an order of their own.
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
