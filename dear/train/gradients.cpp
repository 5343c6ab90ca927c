// What backward passes bring: gradients on their way to buckets, and those that the program drops.

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "dear/base/error.h"
#include "dear/train/data_parallel_impl.h"

namespace dear {

void DataParallel::Impl::backward_pass_began(std::size_t parameter) {
  if (were_dropped(parameter)) forget_dropped(parameter);
  backward_pass_ = torch::autograd::get_current_graph_task_id();
  if (!ahead_ && engine_->updates_ahead()) {
    await_last_step();
    engine_->restore_parameters();
    engine_->capture_options(optimizer_);
    ahead_ = true;
  }
  torch::autograd::Engine::get_default_engine().queue_callback([this] { backward_pass_ended(); });
  // Within the pass nobody but the accumulators touches gradients, and those have their turn before a bucket
  // is sent.
  if (!recording_ && engine_->conductor().all_parameters_whole()) observation_.disable();
}

void DataParallel::Impl::backward_pass_ended() {
  backward_pass_ = -1;
  clock_.backward_ended();
  if (!engine_->conductor().idle()) observation_.enable();
}

void DataParallel::Impl::gradient_arrived(std::size_t parameter) {
  throw_if_failed();
  // A gradient that was made with create_graph may be differentiated: see [Note: second order].
  const bool creates_graph = torch::GradMode::is_enabled();
  if (engine_ && backward_pass_ != torch::autograd::get_current_graph_task_id())
    or_fail([&] { backward_pass_began(parameter); });
  used_[parameter] = true;
  last_arrived_ = parameter;
  if (!engine_) return learn_arrival(parameter, creates_graph);
  const LayerId layer = layer_of_[parameter];
  if (missing_[layer] == 0 && group_.size() > 1) {
    late_ = parameter;
    refuse_late(parameter);
  }
  if (deferrals_ > 0 || creates_graph) return;
  if (++arrivals_[parameter] != expected_[parameter]) return;
  if (group_.size() > 1 && !engine_->holds_gradient(parameter)) engine_->restore_gradient(parameter);
  if (--missing_[layer] > 0) return;
  if (recording_) clock_.gradients_there(layer, now_seconds());
  if (group_.size() > 1) or_fail([&] { engine_->conductor().backward_done(layer); });
}

void DataParallel::Impl::refuse_late(std::size_t parameter) const {
  throw ConfigError(fmt::format(
      "rank {}: another gradient of '{}' arrived after its layer was sent: {} made a step so far. When "
      "steps differ in their number of backward passes, wrap all but the last of each in no_sync(); to "
      "give up a step, call discard_step() on every rank",
      group_.rank(), scanned_.trained[parameter].name, expected_[parameter]));
}

// ---- dropped gradients
// -------------------------------------------------------------------------------------------

// `but` has got its gradient anew already.
bool DataParallel::Impl::were_dropped(std::size_t but) const {
  if (!last_arrived_ || torch::GradMode::is_enabled()) return false;
  const auto gone = [&](std::size_t i) {
    if (i != but) return !scanned_.trained[i].tensor.grad().defined();
    return missing_[layer_of_[i]] > 0 || !engine_->holds_gradient(i);
  };
  if (!gone(*last_arrived_)) return false;
  bool one_of_all = false;
  for (std::size_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) continue;
    if (!gone(i)) return false;
    one_of_all = one_of_all || i != but || missing_[layer_of_[i]] == 0;
  }
  return one_of_all;
}

void DataParallel::Impl::forget_dropped(std::size_t but) {
  if (missing_ == layer_sizes_) return forget_arrivals();
  torch::Tensor& parameter = scanned_.trained[but].tensor;
  const torch::Tensor gradient = std::exchange(parameter.mutable_grad(), torch::Tensor());
  discard();
  parameter.mutable_grad() = gradient;
}

void DataParallel::Impl::forget_arrivals() {
  std::fill(arrivals_.begin(), arrivals_.end(), 0);
  std::fill(used_.begin(), used_.end(), false);
  last_arrived_.reset();
  late_.reset();
  missing_ = layer_sizes_;
  ahead_ = false;
  backward_pass_ = -1;
}

// Sends what is left, as every rank does; what comes back is dropped.
void DataParallel::Impl::discard() {
  const train::Unobserved unobserved;
  if (ahead_)
    throw ConfigError(
        fmt::format("rank {}: a step cannot be given up between backward and step(), where policy {} updates "
                    "already: train with policy dear",
                    group_.rank(), options_.policy));
  Conductor& conductor = engine_->conductor();
  await_last_step();
  for (std::size_t layer = missing_.size(); layer-- > 0;)
    if (missing_[layer] > 0 || group_.size() == 1) conductor.backward_done(static_cast<LayerId>(layer));
  group_.barrier().wait();  // a rank that applies this step instead is found here
  if (tuning_) tuning_->synchronized();
  engine_->drop_updates(true);
  conductor.commit();
  conductor.synchronize();
  engine_->drop_updates(false);
  ++discarded_;
  for (std::size_t i = 0; i < used_.size(); ++i)
    if (!engine_->holds_gradient(i)) scanned_.trained[i].tensor.mutable_grad().reset();
  if (recording_) clock_.next_iteration(now_seconds());
  forget_arrivals();
  if (tuning_) tune();
}

void DataParallel::Impl::discard_step() {
  throw_if_failed();
  or_fail([this] {
    if (engine_) return discard();
    group_.barrier().wait();
    for (train::TrainedParameter& parameter : scanned_.trained) parameter.tensor.mutable_grad().reset();
    forget_arrivals();
  });
}

}  // namespace dear
