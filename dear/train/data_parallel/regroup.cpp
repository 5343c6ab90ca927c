// Other buckets between two steps: DataParallel::regroup(), and those that are chosen while training.

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/data_parallel/on_streams.h"

namespace dear {

std::unique_ptr<train::Engine> DataParallel::Impl::make_engine(const View& decision) {
  train::UpdateRules rules = update_rules_;
  if (engine_ && rules.widening.rounding) rules.widening.rounding->update = engine_->updates();
  auto engine = std::make_unique<train::Engine>(
      group_, scanned_.trained, layers_.order, layers_.layer_of, *optimizer_,
      train::Engine::Options{
          .policy = options_.policy,
          .fusion = fusion_,
          .record = recording_,
          .one_copy = options_.one_copy,
          .rules = std::move(rules),
          .compression = options_.compression,
          .profile = changes_->profile(),
          .decision = decision,
          .hooks = &watching_.hooks(),
          .iterations = record_.commits(engine_.get()),
          .check_parameters = options_.check_parameters,
          .sparse = options_.sparse_rows && !on_streams() ? layers_.sparse : std::vector<bool>(),
          .sparse_gradients = &record_.sparse(),
          .collectives = on_streams() ? options_.streams : nullptr,
          .without_guard = options_.without_guard});
  engine->leave_out(idle_);
  return engine;
}

// [Note: regrouping] Everything that a step leaves behind is in three places: parameters, which synchronize()
// makes whole; gradients, which are zero; and the optimiser's state, of which each rank has its shards. So a
// new engine that adopts the parameters, and is given the state by tensor, goes on as the old one would have:
// neither the order in which contributions are added nor an elementwise update depends on buckets.
void DataParallel::Impl::regroup(Fusion fusion) {
  throw_if_failed();
  state_.require_between_steps("regroup");
  if (engine_) wait_for_all();
  const std::string text = fusion.text();
  announce({.call = agreement::Call::regroup}, text);
  agreement::meet(group_, agreement::Call::regroup, record_.commits(engine_.get()));
  if (engine_) {
    agreement::check_together(group_, [&] {  // refused here, nothing has changed
      static_cast<void>(fusion(engine_->workload()));
      engine_->require_usable_parameters();
    });
    try {
      replace_engine(std::move(fusion), "regroup: fusion " + text);
    } catch (const MismatchError&) {  // on every rank
      throw;
    } catch (...) {
      or_fail([] { throw; });
    }
  } else {
    fusion_ = std::move(fusion);
  }
  changes_->end_choice();
}

std::vector<DataParallel::StateOfParameter> DataParallel::Impl::optimizer_state() {
  throw_if_failed();
  std::vector<std::optional<OptimizerState>> states;
  if (has_state()) {
    state_.require_between_steps("optimizer_state");
    wait_for_all();
    announce({.call = agreement::Call::optimizer_state});
    agreement::meet(group_, agreement::Call::optimizer_state, record_.commits(engine_.get()));
    or_fail([&] { states = engine_->optimizer_state(); });
  } else if (restored_) {
    states = restored_->whole();
  } else {
    for (const auto& parameter : scanned_.trained) states.push_back(optimizer_->state(parameter.tensor));
  }
  std::vector<StateOfParameter> result;
  for (std::size_t i = 0; i < states.size(); ++i)
    result.push_back({scanned_.trained[i].tensor, std::move(states[i])});
  if (has_state()) {
    for (const torch::Tensor& frozen : kept_.parameters()) result.push_back({frozen, kept_.gather(frozen)});
  } else {
    for (const torch::Tensor& frozen : scanned_.frozen)
      if (auto state = optimizer_->state(frozen)) result.push_back({frozen, std::move(state)});
  }
  return result;
}

void DataParallel::Impl::load_optimizer_state(const std::vector<StateOfParameter>& states) {
  throw_if_failed();
  if (!has_state())
    throw ConfigError(
        fmt::format("rank {}: the optimiser holds its state itself {}: load it there", group_.rank(),
                    by_program() ? "where it updates the parameters" : "before the first step()"));
  state_.require_between_steps("load_optimizer_state");
  if (attendance_.joined())
    throw ConfigError(fmt::format(
        "rank {}: the optimiser's state cannot be replaced in a Join, whose ranks without data would keep "
        "theirs: load it before or after",
        group_.rank()));
  wait_for_all();
  agreement::meet(group_, agreement::Call::load_optimizer_state, record_.commits(engine_.get()));
  train::States of_trained(scanned_.trained.size());
  std::vector<StateOfParameter> of_frozen;
  agreement::check_together(group_, [&] {
    for (const StateOfParameter& one : states) {
      const auto found = index_of_.find(one.parameter.unsafeGetTensorImpl());
      if (found != index_of_.end()) {
        of_trained[found->second] = one.state;
      } else if (train::is_frozen(scanned_, one.parameter)) {
        if (one.state) of_frozen.push_back(one);
      } else {
        throw ConfigError(fmt::format(
            "rank {}: a tensor of shape [{}] with state is no trained parameter of this DataParallel",
            group_.rank(), fmt::join(one.parameter.sizes(), ", ")));
      }
    }
    engine_->require_state_of_shape(of_trained);
  });
  or_fail([&] {
    kept_.forget_all();
    for (const auto& [parameter, state] : of_frozen) kept_.keep(parameter, *state);
    engine_->take_over(of_trained);
  });
}

void DataParallel::Impl::choose_buckets() {
  const auto times = [this] {
    if (on_streams()) OnStreams::read_marks(*this);
    return measured();
  };
  const std::optional<train::BucketChanges::Change> change =
      changes_->step_ended(*engine_, statistics().iterations, times);
  recording_ = options_.record_trace || changes_->measures();
  if (!change) return;
  replace_engine(change->fusion.value_or(fusion_), change->why, changes_->decision());
  changes_->changed(*change);
}

void DataParallel::Impl::replace_engine(Fusion fusion, const std::string& why, const View& decision) {
  // With one copy nothing is written between two steps: the new engine adopts what was replaced.
  options_.one_copy ? engine_->require_usable_parameters() : take_over_replaced();
  const autograd::Unobserved unobserved;
  const double begin = now_seconds();
  const std::vector<std::optional<OptimizerState>> state = engine_->optimizer_state();
  std::swap(fusion_, fusion);
  std::unique_ptr<train::Engine> next;
  try {
    next = make_engine(decision);
  } catch (...) {
    std::swap(fusion_, fusion);
    throw;
  }
  next->take_over(state);
  if (options_.compression) {
    next->set_compression_memory(engine_->compression_memory());
    next->set_compression_step(engine_->compression_step());
    earlier_compression_ = add(earlier_compression_, engine_->compression_counts());
  }
  using Keep = train::RunRecord::Keep;
  record_.engine_ends(*engine_, options_.record_trace ? Keep::spans : Keep::nothing);
  // Operators of any thread look into the engine, those of another rank's program too.
  registration_.retreat();
  observed_engine_.store(next.get(), std::memory_order_release);
  engine_ = std::move(next);
  // Else the new one is idle, and step() or a backward enables it.
  if (recording_ || !nothing_to_await()) registration_.enable();
  if (options_.record_trace) record_.engine_replaced(*engine_, why, begin);
}

}  // namespace dear
