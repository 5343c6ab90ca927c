// The memory of a training, by kind.

#include <algorithm>

#include "dear/train/data_parallel/data_parallel_impl.h"

namespace dear {
namespace {

std::int64_t bytes_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  if (tensor.layout() != torch::kStrided) return bytes_of(tensor._indices()) + bytes_of(tensor._values());
  return static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace

namespace train {

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
  if (wire_) report.compression += wire_->rows_bytes();
  const optim::ShardedOptimizer::Memory memory = optimizer_->memory();
  report.optimizer_state = memory.state;
  report.masters = memory.masters;
  // The state whole, of which this rank has its shards, and the shards of the new buckets.
  const bool sharded =
      std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.scattered; });
  report.change_of_buckets += (memory.state + memory.masters) * (sharded ? group_.size() + 1 : 2);
  return report;
}

}  // namespace train

// Before the first step(), and where a rank trains alone, everything is the program's own.
MemoryReport DataParallel::Impl::memory() const {
  MemoryReport report;
  if (engine_) report = engine_->memory();
  if (!has_state()) {
    for (const train::TrainedParameter& parameter : scanned_.trained) {
      if (!engine_) report.parameters += bytes_of(parameter.tensor);
      if (!engine_) report.gradients += bytes_of(parameter.tensor.grad());
      if (const std::optional<OptimizerState> state = optimizer_->state(parameter.tensor))
        for (const auto& [name, vector] : state->vectors) report.optimizer_state += bytes_of(vector);
    }
  }
  for (const torch::Tensor& tensor : scanned_.frozen) report.frozen += bytes_of(tensor);
  for (const torch::Tensor& tensor : scanned_.buffers) report.frozen += bytes_of(tensor);
  report.staging = gradient_calls_.bytes() + changes_->decision().buffer.bytes() +
                   (buffer_exchange_ ? buffer_exchange_->bytes() : 0);
  report.trace = record_.bytes(engine_.get());
  return report;
}

}  // namespace dear
