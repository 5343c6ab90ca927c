#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/shard.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/step.h"
#include "dear/workload/layers/workload.h"

namespace dear::buckets {

// Where one tensor lies in a bucket's flat buffer, in elements.
struct TensorPlacement {
  TensorId tensor;
  std::int64_t offset;
  std::int64_t elements;
};

// Consecutive tensors of one of the optimiser's parameter groups: they are updated as one flat vector.
struct Run {
  std::uint32_t parameter_group;  // index in the optimiser
  Range range;                    // padding included
};

// The flat buffer of a bucket. Every tensor starts at a multiple of 64 bytes, so that kernels see aligned,
// whole vectors in every shard: otherwise the grouping would decide which elements are scalar tails, which
// may round differently. The buffer is a multiple of 64 bytes for each rank, so that all shards of it are
// equal. Padding is zero in parameters and gradients, and stays zero under elementwise updates.
struct BucketLayout {
  DType dtype = DType::f32;
  std::int64_t elements = 0;  // padding included; a multiple of unit_of(dtype, ranks)
  // The tensors whose gradients travel encoded come first, up to here; likewise a multiple.
  std::int64_t encoded_elements = 0;
  std::vector<TensorPlacement> placements;
  std::vector<Run> runs;  // ascending, covering [0, elements)

  [[nodiscard]] std::int64_t bytes() const { return elements * size_of(dtype); }
};

// The fewest elements whose shards (comm/group/shard.h) are equal and not empty: 64 bytes for each rank. All
// shards of a multiple of it are equal, too.
std::int64_t unit_of(DType dtype, int ranks);

// The layout of a bucket that `ranks` ranks train. `group_of[t]` is the parameter group of tensor t;
// `encoded`, by tensor of the bucket, says which gradients travel encoded: none when empty. Tensors of one
// group lie together, in order of their ids, those that travel encoded before the others. Padding belongs to
// the run before it.
BucketLayout lay_out(const Bucket& bucket, const Workload& workload,
                     const std::vector<std::uint32_t>& group_of, int ranks,
                     const std::vector<bool>& encoded = {});

// The elements of a bucket's flat buffer that a chunk of the bucket carries. The bucket has `bucket_bytes`,
// its buffer has `elements`; both ends of the chunk are mapped in proportion and moved down to a multiple of
// unit_of(dtype, ranks), so that all shards of the chunk are equal. So chunks that carry every byte of the
// bucket once carry every element of the buffer once. A chunk of less than a unit may be empty.
Range part_of(const Range& chunk, std::int64_t bucket_bytes, std::int64_t elements, DType dtype, int ranks);

// The parts of the layout's runs that lie inside `range`, without empty ones.
std::vector<Run> runs_within(const BucketLayout& layout, const Range& range);

// The tensors of the layout that lie in the shards of several ranks, where `range` of it is cut into shards.
std::vector<TensorId> tensors_cut(const BucketLayout& layout, const Range& range, int ranks,
                                  const ShardShares* shares = nullptr);

}  // namespace dear::buckets
