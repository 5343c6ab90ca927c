// What backward passes bring: gradients on their way to buckets, and those that the program changes or drops.

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/data_parallel/on_streams.h"

namespace dear {

// [Note: dropped gradients] A program that drops gradients (zero_grad() sets them to none) gives up the step
// that they were for. Where nothing was sent, that is forgotten here. Where a layer was sent, the next
// backward pass finds the gradients gone and completes that step without an update, as discard_step() does:
// every rank in the same place, where the ranks meet.

// [Note: second order] A backward pass with create_graph makes gradients that a later pass of the same step
// may differentiate. Such a pass sends nothing, and a gradient goes into its bucket only when its layer is
// sent: until then it stays the tensor that the program sees, graph and all.

void DataParallel::Impl::hook_ran(const std::size_t& parameter) {
  try {
    gradient_arrived(parameter);
  } catch (...) {
    if (options_.translate_error) options_.translate_error(std::current_exception());
    throw;
  }
}

void DataParallel::Impl::gradient_arrived(const std::size_t& parameter) {
  throw_if_failed();
  const int pass = torch::autograd::get_current_graph_task_id();
  if (parameter == autograd::GradientHooks::kNone) return;
  if (state_.begins_pass(pass)) or_fail([&] { backward_pass_began(parameter, pass); });
  if (parameter == autograd::GradientHooks::kNone) return;  // since now
  if (attendance_.begins()) begin_step();
  // A gradient that was made with create_graph may be differentiated: see [Note: second order].
  const bool counts = !arrivals_.deferred() && !torch::GradMode::is_enabled();
  arrivals_.arrived(parameter);
  if (state_.now() == autograd::IterationState::State::learning) {
    const bool same = learning_->same_gradient(parameter, scanned_.trained[parameter].tensor.grad());
    if (!counts) return;
    arrivals_.count(parameter, same);
    see_gradient(parameter);
    if (pass != first_pass_ && averages_first_gradients())
      torch::autograd::Engine::get_default_engine().queue_callback([this] { average_first_gradients(); });
    first_pass_ = pass;
    return;
  }
  const bool closed = state_.now() == autograd::IterationState::State::closed;
  if (closed || (arrivals_.sent(parameter) && group_.size() > 1)) {
    arrivals_.refuse(parameter);
    refuse_late(parameter);
  }
  if (engine_->streams()) OnStreams::gradient_arrived(*this, parameter);
  if (!counts) return;
  complete(parameter);
  see_gradient(parameter);
}

void DataParallel::Impl::complete(std::size_t parameter) {
  using Complete = autograd::GradientArrivals::Complete;
  const Complete now = arrivals_.counted(parameter);
  if (now == Complete::nothing) return;
  if (group_.size() > 1 && !engine_->holds_gradient(parameter)) engine_->restore_gradient(parameter);
  weigh(parameter);
  if (now == Complete::parameter) return;
  const LayerId layer = layers_.layer_of[parameter];
  if (recording_) record_.clock().gradients_there(layer, clock_now());
  if (group_.size() == 1) return;
  or_fail([&] {
    look_at_complete_buckets(layer);
    engine_->conductor().backward_done(layer);
  });
}

void DataParallel::Impl::backward_pass_began(const std::size_t& parameter, int pass) {
  if (were_dropped(parameter)) forget_dropped(parameter);
  if (state_.now() == autograd::IterationState::State::closed) return;  // refused by the caller
  const bool first = !state_.sends();
  if (first) follow_changes();
  state_.pass_began(pass);
  if (first && engine_->updates_ahead()) {
    program_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    await_last_step();
    engine_->restore_parameters();
    engine_->capture_options();
  }
  torch::autograd::Engine::get_default_engine().queue_callback([this] { backward_pass_ended(); });
  // Within the pass nobody but the accumulators touches gradients, and those have their turn before a bucket
  // is sent.
  const bool whole = engine_->streams() ? nothing_to_await() : engine_->conductor().all_parameters_whole();
  if (!recording_ && whole) registration_.disable();
}

void DataParallel::Impl::backward_pass_ended() {
  state_.pass_ended();
  record_.clock().backward_ended();
  backward_seen_.store(false);
  if (!nothing_to_await()) registration_.enable();
}

void DataParallel::Impl::refuse_late(std::size_t parameter) const {
  if (state_.now() == autograd::IterationState::State::closed)
    throw ConfigError(
        fmt::format("rank {}: another gradient of '{}' arrived after gradients were clipped or unscaled: do "
                    "that after the last "
                    "backward of a step; to give up the step, call discard_step() on every rank",
                    group_.rank(), scanned_.trained[parameter].name));
  throw ConfigError(fmt::format(
      "rank {}: another gradient of '{}' arrived after its layer was sent: {} made a step so far. When "
      "steps differ in their number of backward passes, wrap all but the last of each in no_sync(); to "
      "give up a step, call discard_step() on every rank",
      group_.rank(), scanned_.trained[parameter].name, arrivals_.expected(parameter)));
}

bool DataParallel::Impl::gradients_arrived() const {
  if (!alone_) return arrivals_.any();
  return std::any_of(scanned_.trained.begin(), scanned_.trained.end(),
                     [](const auto& parameter) { return parameter.tensor.grad().defined(); });
}

// ---- gradients that the program changes

void DataParallel::Impl::take_over_replaced() {
  if (updates_ahead()) engine_->require_held_parameters();
  engine_->restore_parameters();
  for (std::size_t i = 0; i < scanned_.trained.size(); ++i) {
    if (engine_->holds_gradient(i)) continue;
    const bool sent = arrivals_.sent(i) && group_.size() > 1;
    if (sent && gradients_are_whole()) {
      wait_for(*engine_, {engine_->bucket_of(i), train::Engine::Kind::gradients});
    } else if (sent) {
      throw ConfigError(fmt::format(
          "rank {}: the gradient of '{}' was replaced or dropped between backward() and "
          "step(), after it was sent: do that before backward() or after step(), or call reduce_gradients() "
          "on every rank before; to give up a step, call discard_step() on every rank",
          group_.rank(), scanned_.trained[i].name));
    }
    const bool used = scanned_.trained[i].tensor.grad().defined();
    if (!sent || !gradients_are_whole()) arrivals_.set_used(i, used);
    engine_->restore_gradient(i);
    if (sent && !used) engine_->mark_unused(i);
  }
}

// What the program sees of gradients that were sent is their means, on every rank.
bool DataParallel::Impl::gradients_are_whole() const {
  return whole_gradients_ || (engine_->by_program() && !options_.compression);
}

// [Note: gradients written in place] Between the backward pass and step() a gradient is a rank's own, or
// whole in that rank's shard alone. What a program writes there is applied before the mean is made, or to a
// part of it, which is what it would be after the mean for a factor, but not for a limit or a projection.
// PyTorch counts writes in place by tensor, ours go through others. Writes through `data` or a raw pointer
// are not counted.
void DataParallel::Impl::see_gradient(std::size_t parameter) {
  const torch::Tensor& gradient = scanned_.trained[parameter].tensor.grad();
  seen_[parameter] = {gradient.unsafeGetTensorImpl(), gradient._version()};
}

void DataParallel::Impl::require_unwritten() const {
  if (group_.size() == 1 || (engine_ ? gradients_are_whole() : whole_first_gradients_)) return;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const torch::Tensor& gradient = scanned_.trained[i].tensor.grad();
    if (seen_[i].gradient == nullptr || !gradient.defined()) continue;
    const bool replaced = gradient.unsafeGetTensorImpl() != seen_[i].gradient;
    if (replaced ? engine_ != nullptr : gradient._version() == seen_[i].version) continue;
    throw ConfigError(fmt::format(
        "rank {}: the gradient of '{}' was changed between backward() and step(), where it is whole on no "
        "rank: call reduce_gradients() on every rank before, and write into the means",
        group_.rank(), scanned_.trained[i].name));
  }
}

// ---- dropped gradients

void DataParallel::Impl::drop_gradients() {
  for (train::TrainedParameter& parameter : scanned_.trained) parameter.tensor.mutable_grad().reset();
  for (torch::Tensor& tensor : scanned_.frozen) tensor.mutable_grad().reset();  // frozen since its backward
}

bool DataParallel::Impl::were_dropped(std::size_t but) const {
  if (torch::GradMode::is_enabled()) return false;
  return arrivals_.were_dropped(but, [&](std::size_t i) {
    if (i != but) return !scanned_.trained[i].tensor.grad().defined();
    return !arrivals_.sent(i) || !engine_->holds_gradient(i);
  });
}

void DataParallel::Impl::forget_dropped(std::size_t but) {
  if (arrivals_.nothing_sent()) return forget_arrivals();
  torch::Tensor& parameter = scanned_.trained[but].tensor;
  const torch::Tensor gradient = std::exchange(parameter.mutable_grad(), torch::Tensor());
  discard();
  parameter.mutable_grad() = gradient;
}

void DataParallel::Impl::forget_arrivals() {
  whole_gradients_ = false;
  seen_.assign(scanned_.trained.size(), {});
  arrivals_.forget();
  state_.given_up();
}

// Sends what is left, as every rank does; what comes back is dropped.
void DataParallel::Impl::discard() {
  announce({.call = agreement::Call::discard_step});
  const autograd::Unobserved unobserved;
  if (engine_->updates_ahead())  // also without a gradient: what is sent below would be applied
    throw ConfigError(
        fmt::format("rank {}: a step cannot be given up between backward and step(), where policy {} updates "
                    "already: train with policy dear",
                    group_.rank(), options_.policy));
  conductor::Conductor& conductor = engine_->conductor();
  await_last_step();
  follow_program();
  for (LayerId layer = arrivals_.layers(); layer-- > 0;)
    if (!arrivals_.layer_sent(layer) || group_.size() == 1) conductor.backward_done(layer);
  conductor.quiesce();
  // A rank that applies this step instead is found here.
  agreement::meet(group_, agreement::Call::discard_step, record_.commits(engine_.get()));
  changes_->waited();
  engine_->drop_updates(true);
  conductor.commit();
  conductor.synchronize();
  engine_->drop_updates(false);
  record_.step_given_up();
  watching_.count(metrics::StepListeners::End::given_up);
  for (std::size_t i = 0; i < scanned_.trained.size(); ++i)
    if (!engine_->holds_gradient(i)) scanned_.trained[i].tensor.mutable_grad().reset();
  if (recording_) record_.clock().next_iteration(clock_now());
  forget_arrivals();
  attendance_.end_step();
  choose_buckets();
}

void DataParallel::Impl::discard_step() {
  throw_if_failed();
  or_fail([this] {
    if (engine_) return discard();
    announce({.call = agreement::Call::discard_step});
    agreement::meet(group_, agreement::Call::discard_step, 0);
    drop_gradients();
    forget_arrivals();
    attendance_.end_step();
    watching_.count(metrics::StepListeners::End::given_up);
  });
}

}  // namespace dear
