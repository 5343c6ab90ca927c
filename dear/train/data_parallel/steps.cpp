// The steps of a training.

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/stream_training.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/engine/model_schedule.h"

namespace dear::train {

void Trainer::require_unchanged() const {
  if (arrivals_.late()) passes.refuse_late(*arrivals_.late());
  if (has_state() && !optimizer_->state_is_away()) {
    throw ConfigError(fmt::format(
        "rank {}: state was loaded into the optimiser, or it was stepped itself, after the first step() of "
        "its DataParallel, which would not know: call step() of DataParallel alone",
        group_.rank()));
  }
}

void Trainer::step() {
  throw_if_failed();
  program_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  if (!gradient_changes.give_up_nonfinite()) take_step();
  monitoring_.listeners().step_ended();
}

void Trainer::take_step() {
  if (alone_) return step_alone();
  uneven_inputs.announce({.call = agreement::Call::step});
  uneven_inputs.hear_balance();
  require_step();
  or_fail([this] { commit(); });
}

void Trainer::require_step() {
  const auto prepare = [this] {
    require_unchanged();
    model_changes.follow();
  };
  if (group_.size() > 1) {
    or_fail(prepare);  // peers that have nothing to refuse would wait
  } else {
    prepare();
  }
  if (layers_.order.empty()) learn_layers();
}

// [Note: alone] A rank alone has nothing to overlap with: no engine, buckets, flat optimiser or hook. The
// program's optimiser steps as it is, and step() drops the gradients; a check of what it holds, one look at
// each parameter, is all that is added.
void Trainer::step_alone() {
  require_unchanged();
  monitoring_.look_at_all_alone(scanned_.trained, steps_alone_);
  if (participation_.samples() == 0) passes.drop_gradients();
  model_changes.follow();
  const auto is_lost = [](const TrainedParameter& one) { return !one.tensor.grad().defined(); };
  if (std::any_of(scanned_.trained.begin(), scanned_.trained.end(), is_lost))
    model_changes.require_same_model();
  optimizer_->step();
  passes.drop_gradients();
  uneven_inputs.end_step();
  ++steps_alone_;
  monitoring_.count(metrics::StepListeners::End::taken);
}

void Trainer::learn_layers() {
  Learning::Layers layers;
  or_fail([&] { layers = learning_->layers(group_, scanned_.trained, arrivals_); });
  static_cast<void>(fusion_(workload_of(scanned_.trained, layers.order, layers.layer_of)));
  // What was refused now is refused on every rank, and nothing has changed.
  layers_ = std::move(layers);
  arrivals_.set_layers(layers_.layer_of);
}

void Trainer::commit() {
  if (verifier_) verifier_->hear();
  prepare_commit();
  if (updates_ahead() && !engine_->updates().has_current_options()) {
    throw ConfigError(
        fmt::format("rank {}: an option of the optimiser, such as its learning rate, was changed between "
                    "backward and step(), where policy {} updates already: change it after step(), or train "
                    "with policy dear",
                    group_.rank(), options_.policy));
  }
  if (!updates_ahead()) engine_->updates().capture_options();
  if (recording_) record_.clock().next_iteration(reports.clock_now());
  backward_seen_.store(false);
  registration_.enable();
  waits.follow_program();
  engine_->conductor().commit();
  if (engine_->updates().by_program()) update_by_program();
  if (!recording_ && waits.nothing_to_await()) registration_.disable();
  arrivals_.end_iteration();
  whole_gradients_ = false;
  seen_.assign(scanned_.trained.size(), {});
  state_.step_taken();
  uneven_inputs.end_step();
  monitoring_.count(metrics::StepListeners::End::taken);
  stragglers.step_ended();
  if (verifier_ && verifier_->counts_to_due()) {
    waits.wait_for_all();
    verifier_->send(scanned_.trained);
  }
  engines.choose_buckets();
  shard_changes.step_ended();
}

// Sends what is left, as every rank does; what comes back is dropped.
void Trainer::discard() {
  uneven_inputs.announce({.call = agreement::Call::discard_step});
  const autograd::Unobserved unobserved;
  if (engine_->updates_ahead())  // also without a gradient: what is sent below would be applied
    throw ConfigError(
        fmt::format("rank {}: a step cannot be given up between backward and step(), where policy {} updates "
                    "already: train with policy dear",
                    group_.rank(), options_.policy));
  conductor::Conductor& conductor = engine_->conductor();
  waits.await_last_step();
  waits.follow_program();
  for (LayerId layer = arrivals_.layers(); layer-- > 0;)
    if (!arrivals_.layer_sent(layer) || group_.size() == 1) conductor.backward_done(layer);
  conductor.quiesce();
  // A rank that applies this step instead is found here.
  agreement::meet(group_, agreement::Call::discard_step, record_.commits(engine_.get()));
  changes_->waited();
  engine_->updates().drop(true);
  registration_.enable();  // the next gradients come after the zeros that the updates leave
  conductor.commit();
  conductor.synchronize();
  engine_->updates().drop(false);
  record_.step_given_up();
  monitoring_.count(metrics::StepListeners::End::given_up);
  for (std::size_t i = 0; i < scanned_.trained.size(); ++i)
    if (!engine_->model().holds_gradient(i)) scanned_.trained[i].tensor.mutable_grad().reset();
  if (recording_) record_.clock().next_iteration(reports.clock_now());
  if (!recording_ && waits.nothing_to_await()) registration_.disable();
  passes.forget_arrivals();
  uneven_inputs.end_step();
  engines.choose_buckets();
  shard_changes.step_ended();
}

void Trainer::discard_step() {
  throw_if_failed();
  or_fail([this] {
    if (engine_) return discard();
    uneven_inputs.announce({.call = agreement::Call::discard_step});
    agreement::meet(group_, agreement::Call::discard_step, 0);
    passes.drop_gradients();
    passes.forget_arrivals();
    uneven_inputs.end_step();
    monitoring_.count(metrics::StepListeners::End::given_up);
  });
}

void Trainer::prepare_commit() {
  if (!engine_) {
    passes.require_unwritten();
    for (std::size_t i = 0; i < scanned_.trained.size(); ++i)
      arrivals_.set_used(i, scanned_.trained[i].tensor.grad().defined());
    fusion_ = changes_->first(workload_of(scanned_.trained, layers_.order, layers_.layer_of), fusion_);
    if (on_streams()) StreamTraining::find_idle(*this);
    engines.make_first_engine();
    observed_engine_.store(engine_.get(), std::memory_order_release);
  } else {
    waits.await_last_step();
    passes.require_unwritten();
    passes.take_over_replaced();
  }
  if (state_.now() == autograd::IterationState::State::closed) return;  // reduced, marks and all
  passes.look_at_other_buckets();
  bool lost = false;
  for (std::size_t i = 0; i < scanned_.trained.size(); ++i) {
    arrivals_.used(i) ? uneven_inputs.weigh(i) : engine_->model().mark_unused(i);
    lost = lost || (!arrivals_.used(i) && arrivals_.expected(i) > 0);
  }
  if (lost) model_changes.require_same_model();
}

void Trainer::close_gradients() {
  prepare_commit();
  if (state_.now() == autograd::IterationState::State::closed) return;
  waits.follow_program();
  if (group_.size() > 1) {
    for (LayerId layer = arrivals_.layers(); layer-- > 0;)
      if (!arrivals_.layer_sent(layer)) engine_->conductor().backward_done(layer);
  }
  state_.closed();
  arrivals_.all_sent();
}

bool Trainer::step(const StepOptions& options) {
  monitoring_.listeners().scaled(options.loss_scale);
  bool given_up = gradient_changes.give_up_nonfinite();
  if (given_up) {
    // Nothing is left to look at.
  } else if (options.skip_nonfinite) {
    if (!gradient_changes.unscale_gradients(options.loss_scale)) {
      discard_step();
      given_up = true;
    }
  } else if (options.loss_scale != 1) {
    gradient_changes.scale_gradients(options.loss_scale);
  }
  if (!given_up) take_step();
  monitoring_.listeners().step_ended();
  return !given_up;
}

// The program may change what it gives in place at once, before the device has come to the updates.
void Trainer::step_unless(const torch::Tensor& nonfinite, const torch::Tensor& inverse_scale) {
  gradient_changes.require_changeable_gradients("step_unless");
  if (on_streams() && nonfinite.device() == scanned_.trained.front().tensor.device()) {
    streams::GradientsOnStream gradients = StreamTraining::final_gradients(*this);
    if (engine_->updates().skips_on_device()) {
      if (inverse_scale.defined()) or_fail([&] { gradients.scale(inverse_scale); });
      const torch::Tensor found = nonfinite.detach().to(torch::kFloat32, false, true).reshape({});
      engine_->streams()->pass_to_communication(found);
      engine_->updates().skip_where(found);
      try {
        take_step();
      } catch (...) {
        engine_->updates().skip_where({});
        throw;
      }
      engine_->updates().skip_where({});
      return monitoring_.listeners().step_ended();
    }
  }
  if (nonfinite.item<double>() == 0) {
    const double scale = inverse_scale.defined() ? 1 / inverse_scale.item<double>() : 1;
    return static_cast<void>(step({.loss_scale = scale, .skip_nonfinite = false}));
  }
  discard_step();
  monitoring_.listeners().step_ended();
}

void Trainer::update_by_program() {
  waits.order_all();
  engine_->give_gradients_to_program();
  optimizer_->step();
  engine_->take_gradients_back();
}

}  // namespace dear::train
