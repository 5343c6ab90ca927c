#include <algorithm>
#include <set>

#include "dear/schedule/policies/backward_times.h"
#include "dear/schedule/policies/collective.h"
#include "dear/schedule/policies/rows.h"

namespace dear {
namespace {

constexpr std::int64_t kGrainBytes = 4 * kKiB;  // blocks are cut at multiples of it

// The most bytes, a multiple of the grain, whose all-reduce takes at most `seconds`.
std::int64_t bytes_within(double seconds, std::int64_t most, const cost::CollectiveTimes& times) {
  std::int64_t fits = -1, beyond = most / kGrainBytes + 1;
  while (beyond - fits > 1) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    const bool within = seconds_of(Collective::all_reduce, middle * kGrainBytes, times) <= seconds;
    (within ? fits : beyond) = middle;
  }
  return std::max<std::int64_t>(fits, 0) * kGrainBytes;
}

// Two phases. Under the backward, of the buckets that are ready the one nearest to the input goes next,
// whole. A bucket that would last beyond the end of the backward is cut there, if its first part takes longer
// than the start-up time that the cut adds. Under the forward, the rest goes whole and in forward order. See
// [Note: orders found at run time].
std::vector<Chunk> in_two_phases(const Workload& workload, const Grouping& grouping,
                                 const cost::CollectiveTimes& times) {
  const std::vector<double> ready = ready_seconds(workload, grouping);
  const double end = workload.backward_seconds();
  const double start_up = seconds_of(Collective::all_reduce, 0, times);
  std::vector<std::int64_t> sent(grouping.size(), 0);
  std::vector<Chunk> chunks;
  std::set<BucketId> waiting;
  double now = 0;
  for (auto next = static_cast<BucketId>(grouping.size()); next > 0 || !waiting.empty();) {
    while (next > 0 && ready[next - 1] <= now) waiting.insert(--next);
    if (waiting.empty()) {
      now = ready[next - 1];
      continue;
    }
    const BucketId bucket = *waiting.begin();
    const std::int64_t begin = sent[bucket], all = grouping.buckets()[bucket].bytes;
    std::int64_t bytes = all - begin;
    if (now < end && now + seconds_of(Collective::all_reduce, bytes, times) > end) {
      bytes = bytes_within(end - now, bytes - 1, times);
      if (bytes == 0 || seconds_of(Collective::all_reduce, bytes, times) < 2 * start_up) {
        now = next > 0 ? std::min(ready[next - 1], end) : end;
        continue;
      }
    }
    chunks.push_back({bucket, bytes == all ? kWholeBucket : Range{begin, begin + bytes}});
    now += seconds_of(Collective::all_reduce, bytes, times);
    sent[bucket] += bytes;
    if (sent[bucket] == all) waiting.erase(bucket);
  }
  return chunks;
}

}  // namespace

Policy us_byte_policy() {
  return {
      .name = "us-byte",
      .summary = "blocks of unequal size: whole tensors, cut where the backward ends, then in forward order",
      .source = "US-Byte: Gao et al., TPDS 2024, doi:10.1109/TPDS.2023.3331372",
      .leaves_out =
          "a greedy choice of the blocks under the backward instead of the paper's algorithm; one "
          "block at a time on the network; played when the schedule is made and then fixed",
      .make =
          [](const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes& times) {
            return make_in_order({workload, grouping, "us-byte"}, in_two_phases(workload, grouping, times));
          },
      .usual_grouping = [](const Workload& workload,
                           const cost::CollectiveTimes&) { return group(workload, PerLayer{}); },
      .bound = overlapped_bound};
}

}  // namespace dear
