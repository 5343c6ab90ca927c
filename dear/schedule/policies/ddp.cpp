#include "dear/schedule/policies/rows.h"

namespace dear {
namespace {

constexpr std::int64_t kFirstBytes = 1 * kMiB;
constexpr std::int64_t kBucketBytes = 25 * kMiB;

// A bucket is closed as soon as it has reached its size. The first bucket in the order of backward is small,
// so that communication begins early.
Grouping by_reached_size(const Workload& workload, const cost::CollectiveTimes&) {
  return group_backward(workload, [](const Bucket& bucket, std::size_t index, TensorId) {
    return bucket.bytes >= (index == 0 ? kFirstBytes : kBucketBytes);
  });
}

Schedule make_ddp(const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes&) {
  Iteration iteration(workload, grouping, "ddp");
  if (workload.buffer_bytes > 0) iteration.broadcast_buffers();
  return make_wait_free(std::move(iteration));
}

}  // namespace

Policy ddp_policy() {
  return {.name = "ddp",
          .summary = "wfbp with buckets in the order of backward, and buffers broadcast before each forward",
          .source = "PyTorch DDP: Li et al., VLDB 2020, arXiv 2006.15704",
          .leaves_out =
              "copies between gradients and buckets take no time; buffers travel in one broadcast, and cost "
              "what the cluster says of each (buffer_seconds), among the ranks of one node as across nodes",
          .make = make_ddp,
          .usual_grouping = by_reached_size,
          .bound = wait_free_bound};
}

}  // namespace dear
