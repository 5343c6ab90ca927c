// What operators, and reads past them, tell a training, and what they wait for.

#include "dear/train/data_parallel/trainer.h"

namespace dear::train {

bool Trainer::touched(const at::Tensor& tensor) noexcept {
  Engine* engine = observed_engine_.load(std::memory_order_acquire);
  if (!engine) {
    const auto found = index_of_.find(tensor.unsafeGetTensorImpl());
    if (found != index_of_.end()) learning_->read(found->second);
    return found != index_of_.end();
  }
  if (!tensor.has_storage()) return false;
  const auto* storage = engine->model().find(tensor.storage().unsafeGetStorageImpl());
  if (!storage) return false;
  try {
    autograd::LayerClock& clock = record_.clock();
    const bool timed = waits.programs_thread() && recording_ && !clock.in_backward() &&
                       storage->kind == ParametersInBuckets::Kind::parameters;
    const auto parameter = timed ? index_of_.find(tensor.unsafeGetTensorImpl()) : index_of_.end();
    const bool next_layer =
        parameter != index_of_.end() && clock.running() != std::optional(layers_.layer_of[parameter->second]);
    if (next_layer) clock.forward_ended(reports.clock_now());
    waits.wait_for(*engine, *storage);
    if (next_layer) clock.forward_began(layers_.layer_of[parameter->second], reports.clock_now());
  } catch (...) {
    engine->conductor().keep_failure(std::current_exception());
  }
  // Another thread might find it idle just before step() makes it busy, and disable just after.
  if (waits.programs_thread() && !recording_ && !engine->streams() && engine->conductor().idle())
    registration_.disable();
  return true;
}

void Trainer::backward_node() noexcept {
  // A node of another model's pass comes here too: then no layer of this one has run since the last step.
  if (!engine_ || !recording_) return;
  // Autograd has a thread for a device, and calls there; the first node of a pass is what counts.
  if (on_streams() ? backward_seen_.load() : !waits.programs_thread()) return;
  autograd::LayerClock& clock = record_.clock();
  if (!clock.forward_seen() || clock.in_backward() || backward_seen_.exchange(true)) return;
  clock.backward_began(reports.clock_now());
}

}  // namespace dear::train
