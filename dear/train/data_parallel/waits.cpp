#include "dear/train/data_parallel/waits.h"

#include <thread>

#include <torch/csrc/autograd/graph_task.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/data_parallel/trainer.h"

namespace dear::train {

// An update of the last step may still be running for a layer that no operator has read since.
void Waits::await_last_step() {
  conductor::Conductor& conductor = own_.engine_->conductor();
  for (BucketId bucket = 0; bucket < own_.engine_->grouping().size(); ++bucket) {
    if (!conductor.parameters_whole(bucket) && !conductor.changes_now(bucket))
      blocking([&] { conductor.wait_parameters(bucket); });
  }
}

void Waits::wait_for_steps() {
  try {
    own_.engine_->conductor().synchronize();
  } catch (const MismatchError&) {
    std::rethrow_exception(agreement::with_remedy(std::current_exception()));
  }
}

void Waits::wait_for_all() {
  wait_for_steps();
  if (own_.engine_->streams()) own_.engine_->streams()->synchronize();
}

void Waits::order_all() {
  wait_for_steps();
  if (own_.engine_->streams()) own_.engine_->streams()->await_all();
}

void Waits::follow_program() {
  if (own_.engine_->streams()) own_.engine_->streams()->follow(streams::Guard::after_program);
}

bool Waits::nothing_to_await() {
  return own_.engine_->conductor().idle() && (!own_.engine_->streams() || own_.engine_->streams()->idle());
}

void Waits::blocking(const std::function<void()>& wait) const {
  own_.options_.around_wait ? own_.options_.around_wait(wait) : wait();
}

bool Waits::programs_thread() const {
  return std::this_thread::get_id() == own_.program_.load(std::memory_order_relaxed);
}

void Waits::wait_for(Engine& engine, const ParametersInBuckets::Storage& storage) const {
  conductor::Conductor& conductor = engine.conductor();
  // A thread that computes no gradients, such as one that saves the model, keeps nobody from the commit.
  const auto before = programs_thread() || torch::autograd::get_current_graph_task_id() >= 0
                          ? conductor::Conductor::Before::refuse
                          : conductor::Conductor::Before::wait;
  const bool of_parameters = storage.kind == ParametersInBuckets::Kind::parameters;
  if (!engine.uses_group(storage.bucket)) {
    // All that was started is on its stream.
  } else if (of_parameters) {
    if (!conductor.parameters_whole(storage.bucket))
      blocking([&] { conductor.wait_parameters(storage.bucket, before); });
  } else if (!conductor.gradients_free(storage.bucket)) {
    blocking([&] { conductor.wait_gradients(storage.bucket, before); });
  }
  if (streams::BucketStreams* streams = engine.streams())
    streams->await(storage.bucket, of_parameters ? streams::Part::parameters : streams::Part::gradients);
}

}  // namespace dear::train
