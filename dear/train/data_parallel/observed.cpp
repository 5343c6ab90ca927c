// What operators, and reads past them, tell a DataParallel, and what they wait for.

#include <torch/csrc/autograd/graph_task.h>

#include "dear/train/data_parallel/on_streams.h"

namespace dear {

void DataParallel::Impl::blocking(const std::function<void()>& wait) const {
  options_.around_wait ? options_.around_wait(wait) : wait();
}

void DataParallel::Impl::wait_for(train::Engine& engine, const train::Engine::Storage& storage) const {
  conductor::Conductor& conductor = engine.conductor();
  // A thread that computes no gradients, such as one that saves the model, keeps nobody from the commit.
  const auto before = programs_thread() || torch::autograd::get_current_graph_task_id() >= 0
                          ? conductor::Conductor::Before::refuse
                          : conductor::Conductor::Before::wait;
  if (streams::BucketStreams* streams = engine.streams()) {
    streams->await(storage.bucket, storage.kind == train::Engine::Kind::parameters
                                       ? streams::Part::parameters
                                       : streams::Part::gradients);
  } else if (storage.kind == train::Engine::Kind::parameters) {
    if (!conductor.parameters_whole(storage.bucket))
      blocking([&] { conductor.wait_parameters(storage.bucket, before); });
  } else if (!conductor.gradients_free(storage.bucket)) {
    blocking([&] { conductor.wait_gradients(storage.bucket, before); });
  }
}

bool DataParallel::Impl::touched(const at::Tensor& tensor) noexcept {
  train::Engine* engine = observed_engine_.load(std::memory_order_acquire);
  if (!engine) {
    const auto found = index_of_.find(tensor.unsafeGetTensorImpl());
    if (found != index_of_.end()) learning_->read(found->second);
    return found != index_of_.end();
  }
  if (!tensor.has_storage()) return false;
  const auto* storage = engine->find(tensor.storage().unsafeGetStorageImpl());
  if (!storage) return false;
  try {
    autograd::LayerClock& clock = record_.clock();
    const bool timed = programs_thread() && recording_ && !clock.in_backward() &&
                       storage->kind == train::Engine::Kind::parameters;
    const auto parameter = timed ? index_of_.find(tensor.unsafeGetTensorImpl()) : index_of_.end();
    const bool next_layer =
        parameter != index_of_.end() && clock.running() != std::optional(layers_.layer_of[parameter->second]);
    if (next_layer) clock.forward_ended(clock_now());
    wait_for(*engine, *storage);
    if (next_layer) clock.forward_began(layers_.layer_of[parameter->second], clock_now());
  } catch (...) {
    engine->conductor().keep_failure(std::current_exception());
  }
  // Another thread might find it idle just before step() makes it busy, and disable just after.
  if (programs_thread() && !recording_ && !engine->streams() && engine->conductor().idle())
    registration_.disable();
  return true;
}

void DataParallel::Impl::backward_node() noexcept {
  // A node of another model's pass comes here too: then no layer of this one has run since the last step.
  if (!engine_ || !recording_) return;
  // Autograd has a thread for a device, and calls there; the first node of a pass is what counts.
  if (on_streams() ? backward_seen_.load() : !programs_thread()) return;
  autograd::LayerClock& clock = record_.clock();
  if (!clock.forward_seen() || clock.in_backward() || backward_seen_.exchange(true)) return;
  clock.backward_began(clock_now());
}

}  // namespace dear
