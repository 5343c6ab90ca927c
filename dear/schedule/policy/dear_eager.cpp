#include "dear/fusion/eager_order.h"
#include "dear/fusion/parcels.h"
#include "dear/schedule/policy/rows.h"

namespace dear {
namespace {

struct Transport {
  Parcels parcels;
  EagerOrder order;
};

// In pieces where that is quicker than whole: a piece more is a start-up more. Where nothing is known of
// times, as the grouping says.
Transport best_transport(const Workload& workload, const Grouping& grouping,
                         const cost::CollectiveTimes& times) {
  const double compute = workload.forward_seconds() + workload.backward_seconds();
  const auto with = [&](Cutting cutting) {
    Transport made{.parcels = parcels_of(workload, grouping, times, cutting), .order = {}};
    made.order = eager_order(made.parcels.parcels, compute);
    return made;
  };
  Transport pieces = with(Cutting::in_pieces);
  if (!times.reduce_scatter || compute == 0) return pieces;
  Transport whole = with(Cutting::whole);
  return pieces.order.seconds < whole.order.seconds ? pieces : whole;
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
  const auto [parcels, order] = best_transport(workload, grouping, times);
  const auto piece_of = [&cuts = parcels.cuts, &grouping](std::uint32_t parcel) {
    const auto& [bucket, begin, end] = cuts[parcel];
    return begin == 0 && end == grouping.buckets()[bucket].bytes ? kWholeBucket : Range{begin, end};
  };
  // Steps of a lane stand in its order, and an edge needs both its steps; so updates, which stand on another
  // lane than what they wait for and what waits for them, are added in between in an order of their own.
  std::vector<StepId> scattered(parcels.cuts.size()), updated(parcels.cuts.size());
  std::size_t next_update = 0;
  std::vector<bool> is_updated(parcels.cuts.size(), false);
  for (const auto& [parcel, half] : order.network) {
    const BucketId bucket = parcels.cuts[parcel].bucket;
    if (half == Half::scatter) {
      scattered[parcel] = iteration.reduce(Collective::reduce_scatter, bucket, piece_of(parcel));
      continue;
    }
    for (; !is_updated[parcel]; ++next_update) {
      const std::uint32_t next = order.updates[next_update];
      updated[next] =
          iteration.update_ahead(parcels.cuts[next].bucket, piece_of(next), updates, scattered[next]);
      is_updated[next] = true;
    }
    const StepId gathered = iteration.gather(Payload::parameters, bucket, updated[parcel], piece_of(parcel));
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
