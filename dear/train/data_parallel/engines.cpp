#include "dear/train/data_parallel/engines.h"

#include <exception>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/schedule/policies/encoding.h"
#include "dear/schedule/policies/one_copy.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/stream_training.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/engine/engine.h"

namespace dear::train {

// It takes the optimiser's state, where updates are of shards.
void Engines::make_first_engine() {
  if (own_.by_program()) {
    own_.engine_ = make_engine();
    if (own_.restored_) std::exchange(own_.restored_, nullptr)->give();
    return;
  }
  const auto states = own_.restored_
                          ? States()
                          : initial_state(own_.group_, *own_.optimizer_, tensors_of(own_.scanned_.trained));
  const auto of_frozen = initial_state(own_.group_, *own_.optimizer_, own_.scanned_.frozen);
  for (std::size_t i = 0; i < of_frozen.size(); ++i)
    if (of_frozen[i]) own_.kept_.keep(own_.scanned_.frozen[i], *of_frozen[i]);
  own_.engine_ = make_engine();
  own_.restored_ ? std::exchange(own_.restored_, nullptr)->give() : own_.engine_->updates().take_over(states);
  own_.optimizer_->state_leaves();
}

std::unique_ptr<Engine> Engines::make_engine(const View& decision) {
  UpdateRules rules = own_.update_rules_;
  if (own_.engine_ && rules.widening.rounding)
    rules.widening.rounding->update = own_.engine_->updates().count();
  auto engine = std::make_unique<Engine>(
      own_.group_, own_.scanned_.trained, own_.layers_.order, own_.layers_.layer_of, *own_.optimizer_,
      Engine::Options{.policy = own_.options_.policy,
                      .fusion = own_.fusion_,
                      .record = own_.recording_,
                      .one_copy = own_.options_.one_copy,
                      .rules = std::move(rules),
                      .shares = shares_,
                      .compression = own_.options_.compression,
                      .profile = own_.changes_->profile(),
                      .decision = decision,
                      .hooks = &own_.monitoring_.hooks(),
                      .iterations = own_.record_.commits(own_.engine_.get()),
                      .check_parameters = own_.options_.check_parameters,
                      .sparse = own_.options_.sparse_rows ? own_.layers_.sparse : std::vector<bool>(),
                      .sparse_gradients = &own_.record_.sparse(),
                      .collectives = own_.on_streams() ? own_.options_.streams : nullptr,
                      .without_guard = own_.without_guard_});
  engine->updates().leave_out(own_.idle_);
  return engine;
}

// [Note: regrouping] Everything that a step leaves behind is in three places: parameters, which synchronize()
// makes whole; gradients, which are zero; and the optimiser's state, of which each rank has its shards. So a
// new engine that adopts the parameters, and is given the state by tensor, goes on as the old one would have:
// neither the order in which contributions are added nor an elementwise update depends on buckets.
void Engines::regroup(Fusion fusion) {
  own_.throw_if_failed();
  own_.state_.require_between_steps("regroup");
  if (own_.engine_) own_.waits.wait_for_all();
  const std::string text = fusion.text();
  own_.uneven_inputs.announce({.call = agreement::Call::regroup}, text);
  agreement::meet(own_.group_, agreement::Call::regroup, own_.record_.commits(own_.engine_.get()));
  if (own_.engine_) {
    agreement::check_together(own_.group_, [&] {  // refused here, nothing has changed
      static_cast<void>(fusion(own_.engine_->workload()));
      own_.engine_->model().require_usable();
    });
    try {
      replace_engine(std::move(fusion), "regroup: fusion " + text);
    } catch (const MismatchError&) {  // on every rank
      throw;
    } catch (...) {
      own_.or_fail([] { throw; });
    }
  } else {
    own_.fusion_ = std::move(fusion);
  }
  own_.changes_->end_choice();
}

// State and parameters go from shards to shards as they do where buckets change: [Note: regrouping].
void Engines::reshard(const std::vector<double>& weights) {
  own_.throw_if_failed();
  own_.state_.require_between_steps("reshard");
  if (own_.participation_.joined())
    throw ConfigError(fmt::format(
        "rank {}: shards cannot be changed in a Join, which a rank without data could not follow: call "
        "reshard() before or after it",
        own_.group_.rank()));
  if (own_.engine_) own_.waits.wait_for_all();
  agreement::meet(own_.group_, agreement::Call::regroup, own_.record_.commits(own_.engine_.get()));
  const std::vector<double> before = std::exchange(own_.options_.shards, weights);
  try {
    agree_on_shards();
  } catch (const ConfigError&) {  // on every rank
    own_.options_.shards = before;
    throw;
  }
  if (own_.engine_) own_.or_fail([this] { replace_engine(own_.fusion_, "shards of other sizes"); });
  own_.changes_->end_choice();
}

void Engines::cut_shards(const std::vector<double>& weights) {
  own_.options_.shards = weights;
  shares_ = std::make_shared<ShardShares>(shard_shares(weights));
  replace_engine(own_.fusion_, "shards of other sizes", own_.changes_->decision());
}

std::vector<DataParallel::StateOfParameter> Engines::optimizer_state() {
  own_.throw_if_failed();
  std::vector<std::optional<OptimizerState>> states;
  if (own_.has_state()) {
    // Passes in no_sync() have sent nothing, and gradients lie where no state does.
    const bool closed = own_.state_.now() == autograd::IterationState::State::closed;
    if (closed || !own_.arrivals_.all_deferred()) own_.state_.require_between_steps("optimizer_state");
    own_.waits.wait_for_all();
    own_.uneven_inputs.announce({.call = agreement::Call::optimizer_state});
    agreement::meet(own_.group_, agreement::Call::optimizer_state, own_.record_.commits(own_.engine_.get()));
    own_.or_fail([&] { states = own_.engine_->updates().state(); });
  } else if (own_.restored_) {
    states = own_.restored_->whole();
  } else {
    for (const auto& parameter : own_.scanned_.trained)
      states.push_back(own_.optimizer_->state(parameter.tensor));
  }
  std::vector<DataParallel::StateOfParameter> result;
  for (std::size_t i = 0; i < states.size(); ++i)
    result.push_back({own_.scanned_.trained[i].tensor, std::move(states[i])});
  if (own_.has_state()) {
    for (const torch::Tensor& frozen : own_.kept_.parameters())
      result.push_back({frozen, own_.kept_.gather(frozen)});
  } else {
    for (const torch::Tensor& frozen : own_.scanned_.frozen)
      if (auto state = own_.optimizer_->state(frozen)) result.push_back({frozen, std::move(state)});
  }
  return result;
}

void Engines::load_optimizer_state(const std::vector<DataParallel::StateOfParameter>& states) {
  own_.throw_if_failed();
  if (!own_.has_state())
    throw ConfigError(
        fmt::format("rank {}: the optimiser holds its state itself {}: load it there", own_.group_.rank(),
                    own_.by_program() ? "where it updates the parameters" : "before the first step()"));
  own_.state_.require_between_steps("load_optimizer_state");
  if (own_.participation_.joined())
    throw ConfigError(fmt::format(
        "rank {}: the optimiser's state cannot be replaced in a Join, whose ranks without data would keep "
        "theirs: load it before or after",
        own_.group_.rank()));
  own_.waits.wait_for_all();
  agreement::meet(own_.group_, agreement::Call::load_optimizer_state,
                  own_.record_.commits(own_.engine_.get()));
  States of_trained(own_.scanned_.trained.size());
  std::vector<DataParallel::StateOfParameter> of_frozen;
  agreement::check_together(own_.group_, [&] {
    for (const DataParallel::StateOfParameter& one : states) {
      const auto found = own_.index_of_.find(one.parameter.unsafeGetTensorImpl());
      if (found != own_.index_of_.end()) {
        of_trained[found->second] = one.state;
      } else if (is_frozen(own_.scanned_, one.parameter)) {
        if (one.state) of_frozen.push_back(one);
      } else {
        throw ConfigError(fmt::format(
            "rank {}: a tensor of shape [{}] with state is no trained parameter of this DataParallel",
            own_.group_.rank(), fmt::join(one.parameter.sizes(), ", ")));
      }
    }
    own_.engine_->updates().require_state_of_shape(of_trained);
  });
  own_.or_fail([&] {
    own_.kept_.forget_all();
    for (const auto& [parameter, state] : of_frozen) own_.kept_.keep(parameter, *state);
    own_.engine_->updates().take_over(of_trained);
  });
}

void Engines::choose_buckets() {
  const auto times = [this] {
    if (own_.on_streams()) StreamTraining::read_marks(own_);
    return own_.reports.measured();
  };
  const std::optional<BucketChanges::Change> change =
      own_.changes_->step_ended(*own_.engine_, own_.reports.statistics().iterations, times);
  own_.recording_ = own_.options_.record_trace || own_.changes_->measures();
  if (!change) return;
  replace_engine(change->fusion.value_or(own_.fusion_), change->why, own_.changes_->decision(),
                 change->policy);
  if (!change->policy.empty() && own_.group_.rank() == 0) tell(own_.options_.say, change->why);
  own_.changes_->changed(*change);
}

void Engines::replace_engine(Fusion fusion, const std::string& why, const View& decision,
                             std::string policy) {
  // With one copy nothing is written between two steps: the new engine adopts what was replaced.
  own_.options_.one_copy ? own_.engine_->model().require_usable() : own_.passes.take_over_replaced();
  const autograd::Unobserved unobserved;
  const double begin = now_seconds();
  const std::vector<std::optional<OptimizerState>> state = own_.engine_->updates().state();
  if (policy.empty()) policy = own_.options_.policy;
  const auto exchange = [&] {
    std::swap(own_.fusion_, fusion);
    std::swap(own_.options_.policy, policy);
  };
  exchange();
  std::unique_ptr<Engine> next;
  try {
    next = make_engine(decision);
  } catch (...) {
    exchange();
    throw;
  }
  next->updates().take_over(state);
  if (own_.options_.compression) {
    next->compression().set_memory(own_.engine_->compression().memory());
    next->compression().set_step(own_.engine_->compression().step());
    own_.earlier_compression_ = add(own_.earlier_compression_, own_.engine_->compression().counts());
  }
  using Keep = RunRecord::Keep;
  own_.record_.engine_ends(*own_.engine_, own_.options_.record_trace ? Keep::spans : Keep::nothing);
  // Operators of any thread look into the engine, those of another rank's program too.
  own_.registration_.retreat();
  own_.observed_engine_.store(next.get(), std::memory_order_release);
  own_.engine_ = std::move(next);
  // Else the new one is idle, and step() or a backward enables it.
  if (own_.recording_ || !own_.waits.nothing_to_await()) own_.registration_.enable();
  if (own_.options_.record_trace) own_.record_.engine_replaced(*own_.engine_, why, begin);
}

// On every rank alike: the policy and the group are the same for all.
void Engines::agree_on_copies() {
  agree(own_.group_, "choice of one copy of the parameters", own_.options_.one_copy,
        [&] { return own_.options_.one_copy ? "on" : "off"; });
  if (!own_.options_.one_copy) return;
  for (const std::string& policy : own_.policies_) require_one_copy_policy(find_policy(policy));
  if (own_.group_.size() == 1) {
    own_.options_.one_copy = false;  // it is one already
    return;
  }
  if (!own_.group_.shares_memory()) static_cast<void>(own_.group_.allocate_shared(0));  // says why not
}

void Engines::agree_on_shards() {
  const std::vector<double>& weights = own_.options_.shards;
  agree(own_.group_, "weights of shards", fmt::format("{:a}", fmt::join(weights, " ")));
  if (weights.empty()) return shares_.reset();
  const int ranks = own_.group_.size();
  if (std::ssize(weights) != ranks)
    throw ConfigError(
        fmt::format("{} weights of shards for {} ranks: give one for each rank", weights.size(), ranks));
  require_shares();
  auto shares = std::make_shared<ShardShares>(shard_shares(weights));
  if (ranks > 1) shares_ = std::move(shares);
}

void Engines::require_shares() const {
  if (own_.on_streams()) StreamTraining::refuse("unequal shards");
  if (own_.options_.ownership != Ownership::cut)
    throw ConfigError(
        "tensors that stay whole lie in equal shards: leave out the weights of shards, or ownership");
  if (!own_.group_.takes_shares())
    throw ConfigError(
        fmt::format("this group ({}) has equal shards only: leave out the weights of shards, or "
                    "train on shared memory or over Gloo",
                    own_.group_.description()));
}

// Ranks may go different ways from here on: none may change what another one reads. After a failure the
// parameters are not whole, and where memory is short they stay as they are.
void Engines::leave_one_copy() noexcept {
  if (!own_.options_.one_copy || !own_.engine_ ||
      own_.state_.now() == autograd::IterationState::State::failed ||
      std::uncaught_exceptions() > own_.unwinding_)
    return;
  try {
    own_.engine_->conductor().synchronize();
    own_.engine_->model().leave_one_copy();
  } catch (const std::exception&) {
  }
}

namespace {

std::vector<float> values_of(const torch::Tensor& tensor, const std::string& parameter) {
  if (!tensor.defined()) return {};
  if (tensor.scalar_type() != torch::kFloat32 || !tensor.device().is_cpu())
    throw ConfigError(
        fmt::format("the state of a compression for '{}' is no fp32 tensor of the CPU", parameter));
  const torch::Tensor flat = tensor.contiguous().reshape({-1});
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

torch::Tensor tensor_of(const std::vector<float>& values) {
  return torch::tensor(values, torch::dtype(torch::kFloat32));
}

}  // namespace

void Engines::agree_on_compression() {
  const std::string text = own_.options_.compression ? own_.options_.compression->text() : "none";
  agree(own_.group_, "compression", text);
  if (!own_.options_.compression) return;
  validate(*own_.options_.compression);
  for (const std::string& policy : own_.policies_) require_policy_that_compresses(find_policy(policy));
  if (own_.options_.one_copy)
    throw ConfigError(
        "gradients that travel compressed update whole buckets on every rank, so ranks cannot share one copy "
        "of "
        "the parameters: leave out one_copy, or the compression");
  if (own_.options_.compression->scope == Scope::model && own_.policies_.size() > 1)
    throw ConfigError("a compression of the whole model leaves no choice of a policy: name one");
  if (own_.options_.compression->scope == Scope::model) own_.options_.buckets = given(Fusion::parse("all"));
}

Engine& Engines::compressing_engine(const char* call) {
  own_.throw_if_failed();
  if (!own_.options_.compression || !own_.engine_)
    throw ScheduleError(
        fmt::format("rank {}: {}() needs compression, and a first step()", own_.group_.rank(), call));
  own_.state_.require_between_steps(call);
  own_.waits.wait_for_all();
  return *own_.engine_;
}

CompressionReport Engines::compression_report() {
  if (!own_.options_.compression || !own_.engine_) return {};
  const Engine& engine = compressing_engine("compression_report");
  const buckets::CompressionCounts counts = add(own_.earlier_compression_, engine.compression().counts());
  return {.steps = engine.compression().step(),
          .bytes = counts.bytes,
          .dense_bytes = counts.dense_bytes,
          .residual_norm = engine.compression().residual_norm(),
          .dense_exchanges = counts.codec.dense_exchanges,
          .not_finite = counts.not_finite,
          .not_finite_rank = counts.codec.not_finite_rank};
}

CompressionStates Engines::compression_states() {
  const Engine& engine = compressing_engine("compression_states");
  CompressionStates states{.step = engine.compression().step(), .parameters = {}};
  const CompressedBuckets::Memory memory = engine.compression().memory();
  for (std::size_t i = 0; i < memory.size(); ++i)
    if (memory[i])
      states.parameters.push_back({.parameter = own_.scanned_.trained[i].tensor,
                                   .residual = tensor_of(memory[i]->residual),
                                   .momentum = tensor_of(memory[i]->momentum),
                                   .codec = tensor_of(memory[i]->codec)});
  return states;
}

void Engines::load_compression_states(const CompressionStates& states) {
  Engine& engine = compressing_engine("load_compression_states");
  CompressedBuckets::Memory memory(own_.scanned_.trained.size());
  for (const CompressionStateOfParameter& state : states.parameters) {
    const auto found = own_.index_of_.find(state.parameter.unsafeGetTensorImpl());
    if (found == own_.index_of_.end())
      throw ConfigError(
          fmt::format("rank {}: the state of a compression names a tensor that is no trained "
                      "parameter of this DataParallel",
                      own_.group_.rank()));
    const std::string& name = own_.scanned_.trained[found->second].name;
    memory[found->second] = {.residual = values_of(state.residual, name),
                             .momentum = values_of(state.momentum, name),
                             .codec = values_of(state.codec, name)};
  }
  engine.compression().set_memory(memory);
  engine.compression().set_step(states.step);
}

}  // namespace dear::train
