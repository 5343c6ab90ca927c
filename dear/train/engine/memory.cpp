// The memory of a training's buckets, by kind.

#include <algorithm>

#include "dear/train/engine/engine.h"

namespace dear::train {

MemoryReport Engine::memory() const {
  MemoryReport report;
  for (const BucketStorage& bucket : model_.buckets()) {
    const buckets::BucketLayout& layout = bucket.layout();
    std::int64_t used = 0;
    for (const buckets::TensorPlacement& placement : layout.placements) used += placement.elements;
    used *= size_of(layout.dtype);
    const bool elsewhere = copies_ == Copies::one_for_all && group_.rank() != 0;  // of the parameters
    (elsewhere ? report.saved_by_one_copy : report.parameters) += used;
    report.gradients += used;
    const int held = elsewhere || updates_->by_program() ? 1 : 2;
    report.padding += (layout.bytes() - used) * held;
    report.replaced += bucket.incoming_bytes();
    report.change_of_buckets += layout.bytes() * held;
  }
  report.compression = compression_.bytes() + wire_->rows_bytes();
  const optim::ShardedOptimizer::Memory memory = updates_->optimizer().memory();
  report.optimizer_state = memory.state;
  report.masters = memory.masters;
  // The state whole, of which this rank has its shards, and the shards of the new buckets.
  const bool sharded = std::any_of(updates_->parts().begin(), updates_->parts().end(),
                                   [](const auto& part) { return part.scattered; });
  report.change_of_buckets += (memory.state + memory.masters) * (sharded ? group_.size() + 1 : 2);
  return report;
}

}  // namespace dear::train
