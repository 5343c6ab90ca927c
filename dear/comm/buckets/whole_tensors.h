#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/comm/buckets/layout.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/workload/layers/workload.h"

namespace dear::buckets {

// A tensor of a bucket as it is to be placed in the bucket's flat buffer, which is cut into equal shards.
struct Placeable {
  std::int64_t elements = 0;
  // The cost of an update of the tensor, in any unit: above 0 where one rank makes it whole, so that no
  // border of shards may cut the tensor. 0: it may be cut.
  double cost = 0;
};

struct Placement {
  std::int64_t elements = 0;          // of the buffer: of all shards
  std::vector<std::int64_t> offsets;  // by tensor
};

// [Note: whole tensors] An optimiser that looks at whole matrices needs each of them on one rank. The
// collectives of a bucket know equal shards only. So tensors that must stay whole are placed first, each
// inside a shard, the largest first, in the shard of the rank whose updates cost least so far; tensors that
// may be cut fill what is left, across borders where they are long. Shards are as short as this allows: what
// they are longer than a P-th of all tensors is padding, which travels. A shard is at least as long as the
// longest whole tensor. Where gaps are too short for tensors that may be cut and are long, such as an
// embedding, those lie at the end, and the ranks there get fewer whole ones. Costs are balanced over all
// buckets: what a rank has to do in earlier ones counts.
//
// Places tensors on `ranks` shards: every tensor begins at a multiple of `line` elements, and shards are
// multiples of it. `load`: by rank, the cost of its updates in earlier buckets, to which those of this bucket
// are added; the same on every rank, as the result is.
Placement place_whole(const std::vector<Placeable>& tensors, int ranks, std::int64_t line,
                      std::vector<double>& load);

// What updates cost of the tensors that one rank makes whole, as buckets see the tensors.
struct CostOfTensors {
  std::vector<double> cost_of;  // by TensorId; 0 for one that may be cut

  // `by_parameter`: the costs, or nothing; `order`: the parameters in the order of their ids.
  CostOfTensors(const std::vector<double>& by_parameter, const std::vector<std::size_t>& order);
  [[nodiscard]] bool any_whole(const Bucket& bucket) const;
};

// As lay_out(), with some tensors whole in a shard; none travels encoded. `cost_of`: by TensorId, of the
// update of a tensor that is whole, else 0.
BucketLayout lay_out_whole(const Bucket& bucket, const Workload& workload,
                           const std::vector<std::uint32_t>& group_of, int ranks,
                           const std::vector<double>& cost_of, std::vector<double>& load);

}  // namespace dear::buckets
