#include "dear/train/data_parallel/data_parallel.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/choose_updates.h"
#include "dear/train/data_parallel/on_streams.h"

namespace dear {
namespace {

[[noreturn]] void refuse_without_recording() {
  throw ConfigError("nothing was recorded: set DataParallelOptions::record_trace");
}

}  // namespace

DataParallel::Impl::Impl(const Model& model, std::unique_ptr<Optimizer> optimizer, const Group& group,
                         DataParallelOptions options)
    : group_(agreement::own_group(group)),
      optimizer_(std::move(optimizer)),
      options_(std::move(options)),
      alone_(group_.size() == 1 && !options_.record_trace && !options_.compression &&
             !options_.fp32_masters && !options_.stochastic_rounding),
      kept_(group_),
      attendance_(group_.size()),
      state_(group_.rank()),
      record_(group_.rank(), options_.say) {
  const autograd::Unobserved unobserved;
  agreement::check_together(group_, [&] {
    updates_in_backward_ = find_training_policy(options_.policy).overlap == Overlap::eager;
    if (options_.profile_steps < 1)
      throw ConfigError(
          fmt::format("profile_steps is {}: at least 1 must be measured", options_.profile_steps));
    scanned_ = train::scan(model, *optimizer_);
    for (const train::TrainedParameter& parameter : scanned_.trained) train::require_untrained(parameter);
    update_rules_ = train::choose_updates(*optimizer_, options_, updates_in_backward_, scanned_);
  });
  train::agree_who_updates(group_, options_, update_rules_);
  choose_policy();
  agreement::check_together(group_, [&] { OnStreams::require_usable(*this, scanned_); });
  agree_on_copies();
  agree_on_compression();
  train::agree_on_checks(group_, options_, updates_in_backward_);
  train::require_alike(group_, model, *optimizer_, scanned_);
  train::agree_on_updates(group_, update_rules_);

  std::vector<torch::Tensor> everything = scanned_.frozen;
  for (const auto& parameter : scanned_.trained) everything.push_back(parameter.tensor);
  everything.insert(everything.end(), scanned_.buffers.begin(), scanned_.buffers.end());
  model::TensorBroadcast(group_, std::move(everything)).run();
  exchange_buffers();
  if (update_rules_.by_program() && options_.updates != Updates::program && group_.size() > 1 &&
      group_.rank() == 0) {
    const std::string sentence = fmt::format(
        "the program's optimiser updates the parameters itself, on every rank, in step(), because {}; "
        "each rank keeps all of its state, and gradients are whole after the backward pass (policy {}), so "
        "that "
        "nothing hides under the next forward pass",
        update_rules_.of_program, options_.policy);
    options_.say ? options_.say(sentence)
                 : static_cast<void>(std::cerr << fmt::format("dear: {}\n", sentence));
  }
  // Alone there is nothing to overlap with: updates run in step(), and no operator is ever observed.
  if (group_.size() == 1) options_.policy = "serial";
  if (group_.size() == 1) options_.buckets = given(options_.buckets.first);
  agree(group_, "choice of buckets",
        fmt::format("{}, profile after {} steps", options_.buckets.text, options_.profile_steps));
  changes_.emplace(group_, options_, scanned_.trained.front().tensor.device());
  fusion_ = options_.buckets.first;
  recording_ = options_.record_trace || changes_->measures();

  learning_.emplace(scanned_.trained.size());
  arrivals_ = autograd::GradientArrivals(scanned_.trained.size());
  if (alone_) return;
  set_trained();
  registration_.enable();
}

DataParallel::Impl::~Impl() {
  registration_.disable();
  hooks_.clear();
  const bool failed_in_operator = engine_ && engine_->conductor().failure();  // perhaps on this rank alone
  if (std::uncaught_exceptions() > unwinding_) {
    group_.abort("the training program ended with an error");
  } else if (state_.now() != autograd::IterationState::State::failed &&
             (arrivals_.any() || failed_in_operator)) {
    // Peers that go on to their step(), or have come to this place, must not wait for this rank.
    if (std::current_exception()) {
      group_.abort(
          "its DataParallel was destroyed between a backward pass and step(), where an error was handled");
    } else {
      try {
        if (engine_) failed_in_operator ? engine_->conductor().drain() : engine_->conductor().quiesce();
        group_.barrier().wait();
      } catch (const std::exception&) {
        // The group has ended, here and on the peers.
      }
    }
  }
  leave_one_copy();
}

// ---- refusals and failures

void DataParallel::Impl::fail(const std::exception_ptr& error) noexcept {
  if (!state_.fail(agreement::with_remedy(error))) return;
  if (engine_) engine_->conductor().keep_failure(error);
  try {
    std::rethrow_exception(error);
  } catch (const TransportError&) {  // peers have it from the group
  } catch (const TimeoutError&) {
  } catch (const MismatchError&) {  // and find this one themselves
  } catch (const std::exception& known) {
    group_.abort(known.what());
  } catch (...) {
    group_.abort("an exception of an unknown type");
  }
}

const train::Engine& DataParallel::Impl::engine() const {
  if (alone_)
    throw ScheduleError(
        "one rank trains alone, without a schedule: start more ranks, or set record_trace to have one");
  if (!engine_) throw ScheduleError("there is no schedule before the first step(): call step() once");
  return *engine_;
}

void DataParallel::Impl::throw_if_failed() {
  state_.throw_if_failed();
  const train::Engine* engine = observed_engine_.load(std::memory_order_acquire);
  const std::exception_ptr error = engine ? engine->conductor().failure() : nullptr;
  if (error) std::rethrow_exception(agreement::with_remedy(error));
}

// ---- steps

// An update of the last step may still be running for a layer that no operator has read since.
void DataParallel::Impl::await_last_step() {
  conductor::Conductor& conductor = engine_->conductor();
  for (BucketId bucket = 0; bucket < engine_->grouping().size(); ++bucket) {
    if (!conductor.parameters_whole(bucket) && !conductor.changes_now(bucket))
      blocking([&] { conductor.wait_parameters(bucket); });
  }
}

void DataParallel::Impl::require_unchanged() const {
  if (arrivals_.late()) refuse_late(*arrivals_.late());
  if (has_state() && !optimizer_->state_is_away()) {
    throw ConfigError(fmt::format(
        "rank {}: state was loaded into the optimiser, or it was stepped itself, after the first step() of "
        "its DataParallel, which would not know: call step() of DataParallel alone",
        group_.rank()));
  }
}

void DataParallel::Impl::step() {
  throw_if_failed();
  program_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  if (!give_up_nonfinite()) take_step();
  watching_.listeners().step_ended();
}

void DataParallel::Impl::take_step() {
  if (alone_) return step_alone();
  announce({.call = agreement::Call::step});
  require_step();
  or_fail([this] { commit(); });
}

void DataParallel::Impl::require_step() {
  const auto prepare = [this] {
    require_unchanged();
    follow_changes();
  };
  if (group_.size() > 1) {
    or_fail(prepare);  // peers that have nothing to refuse would wait
  } else {
    prepare();
  }
  if (layers_.order.empty()) learn_layers();
}

// [Note: alone] A rank alone has nothing to overlap with: no engine, buckets, twin or hook. The program's
// optimiser steps as it is, and step() drops the gradients; a check of what it holds, one look at each
// parameter, is all that is added.

void DataParallel::Impl::step_alone() {
  require_unchanged();
  watching_.look_at_all_alone(scanned_.trained, steps_alone_);
  if (attendance_.samples() == 0) drop_gradients();
  follow_changes();
  const auto is_lost = [](const train::TrainedParameter& one) { return !one.tensor.grad().defined(); };
  if (std::any_of(scanned_.trained.begin(), scanned_.trained.end(), is_lost)) require_same_model();
  optimizer_->step();
  drop_gradients();
  attendance_.end_step();
  ++steps_alone_;
  watching_.count(metrics::StepListeners::End::taken);
}

void DataParallel::Impl::learn_layers() {
  train::Learning::Layers layers;
  or_fail([&] { layers = learning_->layers(group_, scanned_.trained, arrivals_); });
  static_cast<void>(fusion_(train::Engine::describe(scanned_.trained, layers.order, layers.layer_of)));
  // What was refused now is refused on every rank, and nothing has changed.
  layers_ = std::move(layers);
  arrivals_.set_layers(layers_.layer_of);
}

void DataParallel::Impl::commit() {
  prepare_commit();
  if (updates_ahead() && !engine_->has_current_options()) {
    throw ConfigError(
        fmt::format("rank {}: an option of the optimiser, such as its learning rate, was changed between "
                    "backward and step(), where policy {} updates already: change it after step(), or train "
                    "with policy dear",
                    group_.rank(), options_.policy));
  }
  if (!updates_ahead()) engine_->capture_options();
  if (recording_) record_.clock().next_iteration(clock_now());
  backward_seen_.store(false);
  registration_.enable();
  follow_program();
  engine_->conductor().commit();
  if (engine_->by_program()) update_by_program();
  if (!recording_ && nothing_to_await()) registration_.disable();
  arrivals_.end_iteration();
  whole_gradients_ = false;
  seen_.assign(scanned_.trained.size(), {});
  state_.step_taken();
  attendance_.end_step();
  watching_.count(metrics::StepListeners::End::taken);
  choose_buckets();
}

void DataParallel::Impl::synchronize() {
  throw_if_failed();
  if (engine_) {
    wait_for_all();
    changes_->waited();
  }
  // Gradients may be on their way, and a collective would meet them in another order on another rank.
  if (state_.sends() || !buffers_travel()) return;
  announce({.call = agreement::Call::synchronize});
  agreement::meet(group_, agreement::Call::synchronize, record_.commits(engine_.get()));
  if (!engine_) return;
  or_fail([this] {
    take_buffers();
    if (buffer_exchange_) buffer_exchange_->at_synchronize(attendance_.first());
  });
}

void DataParallel::Impl::wait() {
  throw_if_failed();
  if (!engine_) return;
  engine_->streams() ? engine_->streams()->await_all() : wait_for_all();
}

void DataParallel::Impl::wait_for_all() {
  if (engine_->streams()) engine_->streams()->synchronize();
  try {
    engine_->conductor().synchronize();
  } catch (const MismatchError&) {
    std::rethrow_exception(agreement::with_remedy(std::current_exception()));
  }
}

Trace DataParallel::Impl::trace() {
  if (!options_.record_trace) refuse_without_recording();
  synchronize();
  return {.title = fmt::format("policy {}, {}", engine().schedule().policy(),
                               counted(index_of(group_.size()), "rank")),
          .network = group_.modelled_network().empty() ? "" : "modelled: " + group_.modelled_network(),
          .spans = record_.spans(*engine_)};
}

Workload DataParallel::Impl::profile() {
  if (!options_.record_trace) refuse_without_recording();
  synchronize();
  Workload workload = measured();
  workload.device = cpu_device(at::get_num_threads());
  return workload;
}

Workload DataParallel::Impl::measured() const {
  Workload workload = record_.measured(engine(), group_.size());
  for (const torch::Tensor& one : scanned_.buffers) workload.buffer_bytes += one.numel() * one.element_size();
  workload.buffers = std::ssize(scanned_.buffers);
  return workload;
}

// ---- the interface

DataParallel::DataParallel(torch::nn::Module& model, torch::optim::Optimizer& optimizer, Group group,
                           DataParallelOptions options)
    : DataParallel(live_model_of(model), make_optimizer(optimizer), std::move(group), std::move(options)) {
  impl_->set_source([&model] { return model_of(model); });
}

DataParallel::DataParallel(Model model, std::unique_ptr<Optimizer> optimizer, Group group,
                           DataParallelOptions options)
    : impl_(std::make_unique<Impl>(model, std::move(optimizer), group, std::move(options))) {}

DataParallel::~DataParallel() = default;

void DataParallel::step() { impl_->step(); }
void DataParallel::discard_step() { impl_->discard_step(); }
void DataParallel::synchronize() { impl_->synchronize(); }
void DataParallel::wait() { impl_->wait(); }
bool DataParallel::gradients_arrived() const { return impl_->gradients_arrived(); }
bool DataParallel::has_state() const { return impl_->has_state(); }
bool DataParallel::by_program() const { return impl_->by_program(); }
bool DataParallel::has_stepped() const { return impl_->has_stepped(); }
void DataParallel::defer() { impl_->defer(); }
void DataParallel::resume() { impl_->resume(); }
void DataParallel::regroup(Fusion fusion) { impl_->regroup(std::move(fusion)); }
std::vector<DataParallel::StateOfParameter> DataParallel::optimizer_state() {
  return impl_->optimizer_state();
}
void DataParallel::load_optimizer_state(const std::vector<StateOfParameter>& states) {
  impl_->load_optimizer_state(states);
}
const Schedule& DataParallel::schedule() const { return impl_->engine().schedule(); }
const Grouping& DataParallel::grouping() const { return impl_->engine().grouping(); }
const Workload& DataParallel::workload() const { return impl_->engine().workload(); }
DataParallelStatistics DataParallel::statistics() const { return impl_->statistics(); }
const TuningProgress* DataParallel::tuning() const { return impl_->tuning(); }
Trace DataParallel::trace() { return impl_->trace(); }
Workload DataParallel::profile() { return impl_->profile(); }

DataParallel::NoSync::NoSync(DataParallel& owner) : owner_(owner) { owner_.defer(); }
DataParallel::NoSync::~NoSync() { owner_.resume(); }

}  // namespace dear
