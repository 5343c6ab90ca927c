#include "dear/train/data_parallel/backward_passes.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/stream_training.h"
#include "dear/train/data_parallel/trainer.h"

namespace dear::train {

// [Note: dropped gradients] A program that drops gradients (zero_grad() sets them to none) gives up the step
// that they were for. Where nothing was sent, that is forgotten here. Where a layer was sent, the next
// backward pass finds the gradients gone and completes that step without an update, as discard_step() does:
// every rank in the same place, where the ranks meet.

// [Note: second order] A backward pass with create_graph makes gradients that a later pass of the same step
// may differentiate. Such a pass sends nothing, and a gradient goes into its bucket only when its layer is
// sent: until then it stays the tensor that the program sees, graph and all.
void BackwardPasses::hook_ran(const std::size_t& parameter) {
  try {
    gradient_arrived(parameter);
  } catch (...) {
    if (own_.options_.translate_error) own_.options_.translate_error(std::current_exception());
    throw;
  }
}

void BackwardPasses::gradient_arrived(const std::size_t& parameter) {
  own_.throw_if_failed();
  const int pass = torch::autograd::get_current_graph_task_id();
  if (parameter == autograd::GradientHooks::kNone) return;
  if (own_.state_.begins_pass(pass)) {
    own_.stragglers.backward_began();
    own_.or_fail([&] { backward_pass_began(parameter, pass); });
  }
  if (parameter == autograd::GradientHooks::kNone) return;  // since now
  if (own_.participation_.begins()) own_.uneven_inputs.begin_step();
  // A gradient that was made with create_graph may be differentiated: see [Note: second order].
  const bool counts = !own_.arrivals_.deferred() && !torch::GradMode::is_enabled();
  own_.arrivals_.arrived(parameter);
  if (own_.state_.now() == autograd::IterationState::State::learning) {
    const bool same =
        own_.learning_->same_gradient(parameter, own_.scanned_.trained[parameter].tensor.grad());
    if (!counts) return;
    own_.arrivals_.count(parameter, same);
    see_gradient(parameter);
    if (pass != first_pass_ && averages_first_gradients())
      torch::autograd::Engine::get_default_engine().queue_callback([this] { average_first_gradients(); });
    first_pass_ = pass;
    return;
  }
  const bool closed = own_.state_.now() == autograd::IterationState::State::closed;
  if (closed || (own_.arrivals_.sent(parameter) && own_.group_.size() > 1)) {
    own_.arrivals_.refuse(parameter);
    refuse_late(parameter);
  }
  if (own_.engine_->streams()) StreamTraining::gradient_arrived(own_, parameter);
  if (!counts) return;
  complete(parameter);
  see_gradient(parameter);
}

void BackwardPasses::complete(std::size_t parameter) {
  using Complete = autograd::GradientArrivals::Complete;
  const Complete now = own_.arrivals_.counted(parameter);
  if (now == Complete::nothing) return;
  if (own_.group_.size() > 1 && !own_.engine_->model().holds_gradient(parameter))
    own_.engine_->model().restore_gradient(parameter);
  own_.uneven_inputs.weigh(parameter);
  if (now == Complete::parameter) return;
  const LayerId layer = own_.layers_.layer_of[parameter];
  if (own_.recording_) own_.record_.clock().gradients_there(layer, own_.reports.clock_now());
  if (own_.group_.size() == 1) return;
  own_.or_fail([&] {
    look_at_complete_buckets(layer);
    own_.engine_->conductor().backward_done(layer);
  });
}

void BackwardPasses::backward_pass_began(const std::size_t& parameter, int pass) {
  if (were_dropped(parameter)) forget_dropped(parameter);
  if (own_.state_.now() == autograd::IterationState::State::closed) return;  // refused by the caller
  const bool first = !own_.state_.sends();
  if (first) own_.model_changes.follow();
  own_.state_.pass_began(pass);
  if (first && own_.engine_->updates_ahead()) {
    own_.program_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    own_.waits.await_last_step();
    own_.engine_->model().restore_parameters();
    own_.engine_->updates().capture_options();
  }
  torch::autograd::Engine::get_default_engine().queue_callback([this] { backward_pass_ended(); });
  // Within the pass nobody but the accumulators touches gradients, and those have their turn before a bucket
  // is sent.
  const bool whole = own_.engine_->streams() ? own_.waits.nothing_to_await()
                                             : own_.engine_->conductor().all_parameters_whole();
  if (!own_.recording_ && whole) own_.registration_.disable();
}

void BackwardPasses::backward_pass_ended() {
  own_.state_.pass_ended();
  own_.record_.clock().backward_ended();
  own_.backward_seen_.store(false);
  if (!own_.waits.nothing_to_await()) own_.registration_.enable();
}

void BackwardPasses::refuse_late(std::size_t parameter) const {
  if (own_.state_.now() == autograd::IterationState::State::closed)
    throw ConfigError(
        fmt::format("rank {}: another gradient of '{}' arrived after gradients were clipped or unscaled: do "
                    "that after the last "
                    "backward of a step; to give up the step, call discard_step() on every rank",
                    own_.group_.rank(), own_.scanned_.trained[parameter].name));
  throw ConfigError(fmt::format(
      "rank {}: another gradient of '{}' arrived after its layer was sent: {} made a step so far. When "
      "steps differ in their number of backward passes, wrap all but the last of each in no_sync(); to "
      "give up a step, call discard_step() on every rank",
      own_.group_.rank(), own_.scanned_.trained[parameter].name, own_.arrivals_.expected(parameter)));
}

bool BackwardPasses::gradients_arrived() const {
  if (!own_.alone_) return own_.arrivals_.any();
  return std::any_of(own_.scanned_.trained.begin(), own_.scanned_.trained.end(),
                     [](const auto& parameter) { return parameter.tensor.grad().defined(); });
}

void BackwardPasses::take_over_replaced() {
  if (own_.updates_ahead()) own_.engine_->model().require_held();
  own_.engine_->model().restore_parameters();
  for (std::size_t i = 0; i < own_.scanned_.trained.size(); ++i) {
    if (own_.engine_->model().holds_gradient(i)) continue;
    const bool sent = own_.arrivals_.sent(i) && own_.group_.size() > 1;
    if (sent && gradients_are_whole()) {
      own_.waits.wait_for(*own_.engine_,
                          {own_.engine_->model().bucket_of(i), ParametersInBuckets::Kind::gradients});
    } else if (sent) {
      throw ConfigError(
          fmt::format("rank {}: the gradient of '{}' was replaced or dropped between backward() and "
                      "step(), after it was sent: do that before backward() or after step(), or "
                      "call reduce_gradients() "
                      "on every rank before; to give up a step, call discard_step() on every rank",
                      own_.group_.rank(), own_.scanned_.trained[i].name));
    }
    const bool used = own_.scanned_.trained[i].tensor.grad().defined();
    if (!sent || !gradients_are_whole()) own_.arrivals_.set_used(i, used);
    own_.engine_->model().restore_gradient(i);
    if (sent && !used) own_.engine_->model().mark_unused(i);
  }
}

// What the program sees of gradients that were sent is their means, on every rank.
bool BackwardPasses::gradients_are_whole() const {
  return own_.whole_gradients_ || (own_.engine_->updates().by_program() && !own_.options_.compression);
}

// [Note: gradients written in place] Between the backward pass and step() a gradient is a rank's own, or
// whole in that rank's shard alone. What a program writes there is applied before the mean is made, or to a
// part of it, which is what it would be after the mean for a factor, but not for a limit or a projection.
// PyTorch counts writes in place by tensor, ours go through others. Writes through `data` or a raw pointer
// are not counted.
void BackwardPasses::see_gradient(std::size_t parameter) {
  const torch::Tensor& gradient = own_.scanned_.trained[parameter].tensor.grad();
  own_.seen_[parameter] = {gradient.unsafeGetTensorImpl(), gradient._version()};
}

void BackwardPasses::require_unwritten() const {
  if (own_.group_.size() == 1 || (own_.engine_ ? gradients_are_whole() : whole_first_gradients_)) return;
  for (std::size_t i = 0; i < own_.seen_.size(); ++i) {
    const torch::Tensor& gradient = own_.scanned_.trained[i].tensor.grad();
    if (own_.seen_[i].gradient == nullptr || !gradient.defined()) continue;
    const bool replaced = gradient.unsafeGetTensorImpl() != own_.seen_[i].gradient;
    if (replaced ? own_.engine_ != nullptr : gradient._version() == own_.seen_[i].version) continue;
    throw ConfigError(fmt::format(
        "rank {}: the gradient of '{}' was changed between backward() and step(), where it is whole on "
        "no "
        "rank: call reduce_gradients() on every rank before, and write into the means",
        own_.group_.rank(), own_.scanned_.trained[i].name));
  }
}

void BackwardPasses::drop_gradients() {
  for (TrainedParameter& parameter : own_.scanned_.trained) parameter.tensor.mutable_grad().reset();
  for (torch::Tensor& tensor : own_.scanned_.frozen)
    tensor.mutable_grad().reset();  // frozen since its backward
}

bool BackwardPasses::were_dropped(std::size_t but) const {
  if (torch::GradMode::is_enabled()) return false;
  return own_.arrivals_.were_dropped(but, [&](std::size_t i) {
    if (i != but) return !own_.scanned_.trained[i].tensor.grad().defined();
    return !own_.arrivals_.sent(i) || !own_.engine_->model().holds_gradient(i);
  });
}

void BackwardPasses::forget_dropped(std::size_t but) {
  if (own_.arrivals_.nothing_sent()) return forget_arrivals();
  torch::Tensor& parameter = own_.scanned_.trained[but].tensor;
  const torch::Tensor gradient = std::exchange(parameter.mutable_grad(), torch::Tensor());
  own_.discard();
  parameter.mutable_grad() = gradient;
}

void BackwardPasses::forget_arrivals() {
  own_.whole_gradients_ = false;
  own_.seen_.assign(own_.scanned_.trained.size(), {});
  own_.arrivals_.forget();
  own_.state_.given_up();
}

// [Note: gradients of the first iteration] Nothing is sent before the first step(), which makes the buckets.
// A program that changes gradients before it, or whose optimiser has a method beside step(), must find means
// there, too: so each backward pass of the first iteration ends with an exchange of its own. The means of
// equal gradients that the step then makes are these.
bool BackwardPasses::averages_first_gradients() const {
  return own_.update_rules_.by_program() && own_.group_.size() > 1 && !own_.engine_ &&
         !own_.options_.compression && !own_.participation_.joined() &&
         !own_.monitoring_.looks_at_gradients();
}

void BackwardPasses::average_first_gradients() {
  if (!averages_first_gradients()) return;
  const autograd::Unobserved unobserved;
  std::vector<std::uint8_t> mine;
  for (const TrainedParameter& one : own_.scanned_.trained) {
    const torch::Tensor& gradient = one.tensor.grad();
    mine.push_back(!gradient.defined() ? 0 : gradient.layout() != torch::kStrided ? 2 : 1);
  }
  own_.waits.blocking([&] {
    own_.or_fail([&] {
      const auto all = agreement::all_gather_values(own_.group_, agreement::Subject::layer_order, mine);
      std::vector<torch::Tensor> gradients;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        std::uint8_t most = 0;
        for (const auto& theirs : all) most = std::max(most, theirs.at(i));
        if (most != 1) continue;  // of no rank, or sparse
        torch::Tensor& gradient = own_.scanned_.trained[i].tensor.mutable_grad();
        if (!gradient.defined()) gradient = torch::zeros_like(own_.scanned_.trained[i].tensor.detach());
        own_.uneven_inputs.weigh(i);
        gradients.push_back(gradient);
      }
      model::BufferExchange(own_.group_, std::move(gradients), BufferSync::averaged).at_synchronize(0);
    });
  });
  whole_first_gradients_ = true;
}

bool BackwardPasses::all_arrived(BucketId bucket) const {
  const std::vector<TensorId>& tensors = own_.engine_->grouping().buckets()[bucket].tensors;
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](TensorId tensor) { return own_.arrivals_.sent(own_.layers_.order[tensor]); });
}

void BackwardPasses::look_at_complete_buckets(LayerId layer) {
  if (!own_.monitoring_.looks_at_gradients()) return;
  std::set<BucketId> complete;
  for (const TensorId tensor : own_.engine_->workload().layers[layer].tensors) {
    const BucketId bucket = own_.engine_->grouping().bucket_of(tensor);
    if (all_arrived(bucket)) complete.insert(bucket);
  }
  for (const BucketId bucket : complete)
    own_.monitoring_.look_at(*own_.engine_, bucket, own_.record_.commits(own_.engine_.get()));
}

void BackwardPasses::look_at_other_buckets() {
  if (!own_.monitoring_.looks_at_gradients()) return;
  for (BucketId bucket = 0; bucket < own_.engine_->grouping().size(); ++bucket)
    if (own_.group_.size() == 1 || !all_arrived(bucket))
      own_.monitoring_.look_at(*own_.engine_, bucket, own_.record_.commits(own_.engine_.get()));
}

}  // namespace dear::train
