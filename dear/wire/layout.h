#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/ids.h"
#include "dear/collective/shard.h"
#include "dear/fusion/grouping.h"
#include "dear/schedule/step.h"
#include "dear/workload/workload.h"

namespace dear::wire {

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

// The flat buffer of a bucket: every tensor starts on a 64-byte border, so that kernels see aligned, whole
// vectors whatever the shard (what vector code and scalar tails round differently would otherwise depend on
// the grouping). Padding is zero in parameters and gradients, and stays so under elementwise updates.
struct BucketLayout {
  DType dtype = DType::f32;
  std::int64_t elements = 0;  // padding included
  std::vector<TensorPlacement> placements;
  std::vector<Run> runs;  // ascending, covering [0, elements)

  [[nodiscard]] std::int64_t bytes() const { return elements * size_of(dtype); }
};

// `group_of[t]` is the parameter group of tensor t; tensors of one group lie together, in order of their ids.
BucketLayout lay_out(const Bucket& bucket, const Workload& workload,
                     const std::vector<std::uint32_t>& group_of);

// Where a chunk of a bucket of so many bytes lies in a flat buffer of so many elements (both as lay_out()
// makes them): cut in the same proportion, at the 64-byte border before it. So chunks that carry every byte
// of the bucket once carry every element of the buffer once; a chunk of less than 64 bytes may be empty.
Range part_of(const Range& chunk, std::int64_t bucket_bytes, std::int64_t elements, DType dtype);

// The parts of the runs inside `range`, empty ones left out.
std::vector<Run> runs_within(const BucketLayout& layout, const Range& range);

}  // namespace dear::wire
