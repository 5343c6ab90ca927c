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
  report.staging = sums_.bytes() + changes_->decision().buffer.bytes() +
                   (buffer_exchange_ ? buffer_exchange_->bytes() : 0);
  report.trace = record_.bytes(engine_.get());
  return report;
}

}  // namespace dear
