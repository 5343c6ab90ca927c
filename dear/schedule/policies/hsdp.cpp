#include "dear/schedule/policies/rows.h"

namespace dear {

Policy hsdp_policy() {
  return {.name = "hsdp",
          .summary = "as fsdp inside each node, replicated across nodes: shards are all-reduced between them",
          .source = "PyTorch FSDP, hybrid sharding: Zhao et al., VLDB 2023, arXiv 2304.11277",
          .leaves_out =
              "as for fsdp; what travels inside nodes and across takes turns on the lane; nodes are the "
              "innermost dimension of a cluster, and single ranks where there is no other",
          .residence = {.shards = ProcessGroup::node,
                        .optimizer_sharded = true,
                        .gradients_sharded = true,
                        .parameters_sharded = true},
          .overlap = Overlap::decoupled,
          .make =
              [](const Workload& workload, const Grouping& grouping, const cost::CollectiveTimes&) {
                return make_sharded({workload, grouping, "hsdp"}, workload.layers.size(), ProcessGroup::node);
              },
          .usual_grouping = by_size,
          .bound = overlapped_bound};
}

}  // namespace dear
