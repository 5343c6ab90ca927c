// The memory of a training's buckets, by kind.

#include <algorithm>

#include "dear/train/engine/engine.h"

namespace dear::train {

MemoryReport Engine::memory() const {
  MemoryReport report;
  for (const BucketStorage& bucket : buckets_) {
    const buckets::BucketLayout& layout = bucket.layout();
    std::int64_t used = 0;
    for (const buckets::TensorPlacement& placement : layout.placements) used += placement.elements;
    used *= size_of(layout.dtype);
    const bool elsewhere = one_copy_ && group_.rank() != 0;  // of the parameters
    (elsewhere ? report.saved_by_one_copy : report.parameters) += used;
    report.gradients += used;
    const int held = elsewhere || by_program_ ? 1 : 2;
    report.padding += (layout.bytes() - used) * held;
    report.replaced += bucket.incoming_bytes();
    report.change_of_buckets += layout.bytes() * held;
  }
  for (const auto& encoded : encoded_)
    if (encoded) report.compression += encoded->bytes();
  report.compression += wire_->rows_bytes();
  const optim::ShardedOptimizer::Memory memory = optimizer_->memory();
  report.optimizer_state = memory.state;
  report.masters = memory.masters;
  // The state whole, of which this rank has its shards, and the shards of the new buckets.
  const bool sharded =
      std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.scattered; });
  report.change_of_buckets += (memory.state + memory.masters) * (sharded ? group_.size() + 1 : 2);
  return report;
}

}  // namespace dear::train
