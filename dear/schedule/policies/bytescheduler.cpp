#include <algorithm>
#include <deque>
#include <limits>
#include <set>

#include "dear/schedule/policies/backward_times.h"
#include "dear/schedule/policies/collective.h"
#include "dear/schedule/policies/rows.h"

namespace dear {
namespace {

// It cuts as the implementation does, which counts elements of four bytes: the size of the partitions that
// tensors are cut into, and the most bytes that are on their way at once. Nothing more urgent overtakes what
// is on its way.
constexpr std::int64_t kPartitionBytes = 4'000'000;
constexpr std::int64_t kCreditBytes = 16'000'000;

Grouping per_tensor(const Workload& workload, const cost::CollectiveTimes&) {
  return group_backward(workload, [](const Bucket&, std::size_t, TensorId) { return true; });
}

// Whenever there is credit, sends the next partition of the ready bucket that is nearest to the input. All
// partitions of an iteration arrive before the next backward, so one backward stands for all iterations. See
// [Note: orders found at run time].
std::vector<Chunk> by_priority(const Workload& workload, const Grouping& grouping,
                               const cost::CollectiveTimes& times) {
  struct InFlight {
    double ends;
    std::int64_t bytes;
  };
  const std::vector<double> ready = ready_seconds(workload, grouping);
  std::vector<std::int64_t> sent(grouping.size(), 0);
  std::vector<Chunk> chunks;
  std::set<BucketId> waiting;
  std::deque<InFlight> in_flight;
  std::int64_t credit = kCreditBytes;
  double now = 0, network_free = 0;
  for (auto next = static_cast<BucketId>(grouping.size()); next > 0 || !waiting.empty();) {
    while (next > 0 && ready[next - 1] <= now) waiting.insert(--next);
    while (!in_flight.empty() && in_flight.front().ends <= now) {
      credit += in_flight.front().bytes;
      in_flight.pop_front();
    }
    if (!waiting.empty() && credit > 0) {
      const BucketId bucket = *waiting.begin();
      const std::int64_t begin = sent[bucket], all = grouping.buckets()[bucket].bytes;
      const std::int64_t bytes = std::min(kPartitionBytes, all - begin);
      chunks.push_back({bucket, bytes == all ? kWholeBucket : Range{begin, begin + bytes}});
      network_free =
          std::max(now, network_free) + seconds_of_joint(Collective::all_reduce, begin, begin + bytes, times);
      in_flight.push_back({network_free, bytes});
      credit -= bytes;
      sent[bucket] += bytes;
      if (sent[bucket] == all) waiting.erase(bucket);
      continue;
    }
    constexpr double kNever = std::numeric_limits<double>::infinity();
    now = std::min(next > 0 ? ready[next - 1] : kNever, in_flight.empty() ? kNever : in_flight.front().ends);
  }
  return chunks;
}

}  // namespace

Schedule make_in_order(Iteration iteration, const std::vector<Chunk>& chunks) {
  const LaneId updates = iteration.add_update_lane();
  const std::vector<BucketId> order = iteration.forward_order();
  std::vector<std::vector<StepId>> reduced(order.size());
  for (const auto& [bucket, bytes] : chunks)
    reduced[bucket].push_back(iteration.reduce(Collective::all_reduce, bucket, bytes));
  for (const BucketId bucket : order) {
    const StepId updated = iteration.update(UpdateScope::whole, bucket, updates, reduced[bucket].front());
    for (std::size_t i = 1; i < reduced[bucket].size(); ++i) iteration.edge(reduced[bucket][i], updated);
    iteration.publish(bucket, updated);
  }
  return std::move(iteration).build();
}

Policy bytescheduler_policy() {
  return {.name = "bytescheduler",
          .summary =
              "tensors in partitions of 4 MB, those nearest to the input first, 16 MB on their way at once",
          .source = "ByteScheduler: Peng et al., SOSP 2019, doi:10.1145/3341301.3359642",
          .leaves_out =
              "priorities are played when the schedule is made and then fixed; partition and credit "
              "are not tuned; nothing is negotiated between ranks",
          .holds_layers = true,
          .joins_chunks = true,
          .make =
              [](const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes& times) {
                return make_in_order({workload, grouping, "bytescheduler"},
                                     by_priority(workload, grouping, times));
              },
          .usual_grouping = per_tensor,
          .bound = overlapped_bound};
}

}  // namespace dear
