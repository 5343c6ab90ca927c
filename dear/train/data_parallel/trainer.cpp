#include "dear/train/data_parallel/trainer.h"

#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/say.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/endings.h"
#include "dear/comm/group/exchange.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/choose_updates.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/stream_training.h"
#include "dear/train/model/buffer_exchange.h"

namespace dear::train {

Trainer::Trainer(const Model& model, std::unique_ptr<Optimizer> optimizer, const Group& group,
                 DataParallelOptions options)
    : group_(agreement::own_group(group)),
      optimizer_(std::move(optimizer)),
      options_(std::move(options)),
      alone_(group_.size() == 1 && !options_.record_trace && !options_.compression &&
             !options_.fp32_masters && !options_.stochastic_rounding),
      kept_(group_),
      participation_(group_.size()),
      state_(group_.rank()),
      record_(group_.rank(), options_.say) {
  const autograd::Unobserved unobserved;
  agreement::check_together(group_, [&] {
    policies_ = options_.buckets.policies;
    if (policies_.empty()) policies_ = {options_.policy};
    options_.policy = policies_.front();
    for (const std::string& policy : policies_)
      if (find_training_policy(policy).overlap == Overlap::eager) updates_in_backward_ = true;
    if (options_.profile_steps < 1)
      throw ConfigError(
          fmt::format("profile_steps is {}: at least 1 must be measured", options_.profile_steps));
    scanned_ = scan(model, *optimizer_);
    for (const TrainedParameter& parameter : scanned_.trained) require_untrained(parameter);
    update_rules_ = choose_updates(*optimizer_, options_, updates_in_backward_, scanned_);
  });
  agree_who_updates(group_, options_, update_rules_);
  choose_policy();
  agreement::check_together(group_, [&] { StreamTraining::require_usable(*this, scanned_); });
  engines.agree_on_copies();
  engines.agree_on_compression();
  engines.agree_on_shards();
  agree_on_checks(group_, options_, updates_in_backward_);
  require_alike(group_, model, *optimizer_, scanned_);
  agree_on_updates(group_, update_rules_);

  std::vector<torch::Tensor> everything = scanned_.frozen;
  for (const auto& parameter : scanned_.trained) everything.push_back(parameter.tensor);
  everything.insert(everything.end(), scanned_.buffers.begin(), scanned_.buffers.end());
  model::TensorBroadcast(group_, std::move(everything)).run();
  shared_buffers.exchange_buffers();
  if (update_rules_.by_program() && options_.updates != Updates::program && group_.size() > 1 &&
      group_.rank() == 0) {
    const std::string sentence = fmt::format(
        "the program's optimiser updates the parameters itself, on every rank, in step(), because {}; "
        "each rank keeps all of its state, and gradients are whole after the backward pass (policy {}), so "
        "that "
        "nothing hides under the next forward pass",
        update_rules_.of_program, options_.policy);
    tell(options_.say, sentence);
  }
  // Alone there is nothing to overlap with: updates run in step(), and no operator is ever observed.
  if (group_.size() == 1) options_.policy = "serial";
  if (group_.size() == 1) options_.buckets = given(options_.buckets.first);
  if (options_.verify_every < 0)
    throw ConfigError(
        fmt::format("verify_every is {}: give a number of steps, or 0 for never", options_.verify_every));
  agree(group_, "verify_every", std::to_string(options_.verify_every));
  agree(group_, "naming of slow ranks",
        options_.slow_ranks ? fmt::format("{:a} s, {} windows, {:a}, from step {}",
                                          options_.slow_ranks->window_seconds, options_.slow_ranks->windows,
                                          options_.slow_ranks->behind, options_.slow_ranks->first_step)
                            : "off");
  agree(group_, "choice of buckets",
        fmt::format("{}, profile after {} steps", options_.buckets.text, options_.profile_steps));
  uneven_inputs.begin_balance();
  shard_changes.begin();
  changes_.emplace(group_, options_, scanned_.trained.front().tensor.device());
  fusion_ = options_.buckets.first;
  recording_ = options_.record_trace || changes_->measures();

  learning_.emplace(scanned_.trained.size());
  arrivals_ = autograd::GradientArrivals(scanned_.trained.size());
  if (alone_) return;
  if (options_.verify_every > 0) verifier_.emplace(group_, options_.verify_every);
  model_changes.begin();
  registration_.enable();
}

namespace {

// Until the process ends.
void keep(const Group& group) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<Group>();
  const std::lock_guard lock(mutex);
  kept->push_back(group);
}

}  // namespace

Trainer::~Trainer() {
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
        const Pending end =
            group_.issue({.collective = Collective::barrier, .label = comm::kEndsWithinAStep});
        if (ends_alone_) keep(group_);
        if (!ends_alone_) end.wait();
      } catch (const std::exception&) {
        // The group has ended, here and on the peers.
      }
    }
  }
  engines.leave_one_copy();
}

void Trainer::fail(const std::exception_ptr& error) noexcept {
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

const Engine& Trainer::engine() const {
  if (alone_)
    throw ScheduleError(
        "one rank trains alone, without a schedule: start more ranks, or set record_trace to have one");
  if (!engine_) throw ScheduleError("there is no schedule before the first step(): call step() once");
  return *engine_;
}

void Trainer::throw_if_failed() {
  state_.throw_if_failed();
  const Engine* engine = observed_engine_.load(std::memory_order_acquire);
  const std::exception_ptr error = engine ? engine->conductor().failure() : nullptr;
  if (error) std::rethrow_exception(agreement::with_remedy(error));
}

void Trainer::synchronize() {
  throw_if_failed();
  if (engine_) {
    waits.wait_for_all();
    changes_->waited();
  }
  // Gradients may be on their way, and a collective would meet them in another order on another rank.
  if (state_.sends() || !shared_buffers.buffers_travel()) return;
  uneven_inputs.announce({.call = agreement::Call::synchronize});
  agreement::meet(group_, agreement::Call::synchronize, record_.commits(engine_.get()));
  if (!engine_) return;
  or_fail([this] {
    shared_buffers.take_buffers();
    if (buffer_exchange_) buffer_exchange_->at_synchronize(participation_.first());
  });
}

void Trainer::wait() {
  throw_if_failed();
  if (!engine_) return;
  waits.order_all();
}

// One under which a program that reads a gradient after the backward pass finds the mean; updates in the
// backward pass are none of it.
void Trainer::choose_policy() {
  if (!update_rules_.by_program()) return;
  updates_in_backward_ = false;
  options_.policy = "wfbp";
  policies_ = {options_.policy};
  options_.buckets.policies.clear();
}

void Trainer::settle_for(const char* call) {
  throw_if_failed();
  state_.require_between_steps(call);
  if (engine_) waits.wait_for_all();
}

}  // namespace dear::train
