#pragma once

#include <algorithm>
#include <vector>

#include "dear/schedule/policies/iteration.h"
#include "dear/schedule/policies/policy.h"

// The rows of the table, each made by its policy's file; and what several rows share. For the table's own
// use.
namespace dear {

Policy serial_policy();
Policy wfbp_policy();
Policy mg_wfbp_policy();
Policy horovod_policy();
Policy ddp_policy();
Policy bytescheduler_policy();
Policy us_byte_policy();
Policy zero_1_policy();
Policy megatron_policy();
Policy fsdp_policy();
Policy hsdp_policy();
Policy dear_replicated_policy();
Policy dear_policy();
Policy dear_eager_policy();

// Wait-free backpropagation: each bucket is all-reduced under the rest of the backward, and the step waits
// for all of them.
Schedule make_wait_free(Iteration iteration);

// A bucket is a unit. Its parameters are dropped after the forward of its layers and gathered again for their
// backward. In both directions a unit is gathered while the one before it computes. Collectives of the
// backward stand on the lane in the order in which that issues them; a gather comes before a reduction that
// the same backward releases. With shards inside nodes a reduction is followed by its all-reduce across.
Schedule make_sharded(Iteration iteration, std::size_t layer_count, ProcessGroup group);

// All-reduces of these chunks in this order; updates beside the computation, and each
// forward waits for its own buckets alone.
Schedule make_in_order(Iteration iteration, const std::vector<Chunk>& chunks);

inline double overlapped_bound(double f, double b, double r) { return stale_gradient_floor(f, b, r); }

inline Grouping by_size(const Workload& workload, const cost::CollectiveTimes&) {
  return group(workload, BySize{});
}

// All of the all-reduce hides under the backward.
inline double wait_free_bound(double f, double b, double r) { return f + std::max(b, r); }
// Half of the all-reduce hides under the backward, half under the next forward.
inline double decoupled_bound(double f, double b, double r) {
  return std::max(f, r / 2) + std::max(b, r / 2);
}

}  // namespace dear
