// Another set of trained parameters: DataParallel::rebuild(), parameters that are frozen or unfrozen, and
// parameter groups that are added later.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/data_parallel/choose_updates.h"
#include "dear/train/data_parallel/stream_training.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/engine/model_schedule.h"

namespace dear::train {

// [Note: trained anew] When a program freezes parameters, unfreezes some, or gives its optimiser others, the
// ranks meet before they send anything of the next iteration: at its first gradient, or at step() where there
// is none. They scan the model anew and make a new engine, as regrouping does. What the optimiser remembers
// moves along by parameter: into the new buckets, or, of a parameter that is frozen, to where it is kept for
// its return (KeptState). The order of layers and the counts of passes stay; a newcomer goes next to its
// neighbour, and is sent at step() in its first iteration.
//
// A hook may be the one that finds the change, in the midst of a backward pass. Nothing of this iteration is
// sent by then, gradients that have arrived are taken over, and no hook that runs is destroyed.
//
// A rank that has not changed goes on with its schedule, so that the ranks meet with different collectives,
// which is a MismatchError on each.
class Rebuilding {
 public:
  // Finds what is trained in this model, and changes nothing: what one rank refuses, all refuse.
  enum class Values { as_they_are, of_rank_0 };
  Rebuilding(Trainer& owner, const Model& model, Values values);
  void train(const char* why);

 private:
  [[nodiscard]] bool stays(const torch::Tensor& parameter) const;
  void require_same_updates();
  void share_values();
  void require_alike_newcomers() const;
  void move_states();
  void replace_scan();
  void make_engine();

  Trainer& own_;
  const Model model_;
  const Values values_;
  ModelScan scanned_;
  UpdateRules rules_;
  std::vector<std::optional<std::size_t>> was_;  // by trained parameter: its index until now
  // By trained parameter, for the new engine.
  std::vector<std::optional<OptimizerState>> states_;
  CompressedBuckets::Memory compression_;
  std::int64_t compression_step_ = 0;
};

namespace {

optim::TensorSet set_of(const std::vector<torch::Tensor>& tensors) {
  optim::TensorSet set;
  for (const torch::Tensor& tensor : tensors) set.insert(tensor.unsafeGetTensorImpl());
  return set;
}

optim::TensorSet set_of(const std::vector<std::vector<const c10::TensorImpl*>>& held) {
  optim::TensorSet set;
  for (const auto& group : held) set.insert(group.begin(), group.end());
  return set;
}

}  // namespace

Rebuilding::Rebuilding(Trainer& owner, const Model& model, Values values)
    : own_(owner), model_(model), values_(values) {
  std::vector<torch::Tensor> had = own_.scanned_.gone;
  for (const Model::Named& one : own_.scanned_.model.parameters) had.push_back(one.tensor);
  agreement::check_together(own_.group_, [&] {
    scanned_ = scan(model, *own_.optimizer_, had);
    for (const TrainedParameter& parameter : scanned_.trained)
      if (!own_.hooks_.holds(parameter.tensor)) require_untrained(parameter);
    // In a backward pass the graph holds parameters, too.
    rules_ = choose_updates(*own_.optimizer_, own_.options_, own_.updates_in_backward_, scanned_,
                            values_ == Values::of_rank_0 ? own_.model_changes.in_buckets()
                                                         : set_of(tensors_of(scanned_.trained)));
    require_same_updates();
    StreamTraining::require_usable(own_, scanned_);
    if (own_.engine_) own_.engine_->model().require_usable();
  });
  require_alike(own_.group_, model, *own_.optimizer_, scanned_);
  rules_.widening = own_.update_rules_.widening;
  agree_on_updates(own_.group_, rules_);
  Digest stayed;
  for (const TrainedParameter& parameter : scanned_.trained) {
    const auto found = own_.index_of_.find(parameter.tensor.unsafeGetTensorImpl());
    was_.push_back(found == own_.index_of_.end() ? std::nullopt : std::optional(found->second));
    stayed.add(was_.back() ? fmt::format("{} was {}", parameter.name, *was_.back()) : parameter.name);
  }
  agree(own_.group_, "parameters that stay", stayed.hex());
}

// Who makes the updates was chosen at first.
void Rebuilding::require_same_updates() {
  const std::string& before = own_.update_rules_.of_program;
  if (!own_.alone_ && before.empty() && rules_.by_program())
    throw ConfigError(
        fmt::format("rank {}: updates are of shards, and the model as it is now cannot be trained so, "
                    "because {}: close this "
                    "DataParallel and make a new one",
                    own_.group_.rank(), rules_.of_program));
  if (before.empty()) return;
  rules_.of_program = before;
  rules_.whole_costs.assign(rules_.whole_costs.size(), 0);
}

void Rebuilding::train(const char* why) {
  if (own_.alone_) {
    own_.scanned_ = scanned_;
    own_.update_rules_ = rules_;
    return;
  }
  const autograd::Unobserved unobserved;
  const double begin = now_seconds();
  own_.registration_.retreat();
  const bool trains = own_.engine_ != nullptr;
  if (trains && own_.options_.one_copy) own_.engine_->model().leave_one_copy();
  values_ == Values::of_rank_0 ? share_values() : require_alike_newcomers();
  if (trains) move_states();
  replace_scan();
  if (trains) make_engine();
  if (own_.options_.record_trace && trains) own_.record_.engine_replaced(*own_.engine_, why, begin);
  if (own_.recording_ || !trains || !own_.waits.nothing_to_await()) own_.registration_.enable();
}

void Rebuilding::share_values() {
  std::vector<torch::Tensor> all = tensors_of(scanned_.trained);
  all.insert(all.end(), scanned_.frozen.begin(), scanned_.frozen.end());
  all.insert(all.end(), scanned_.buffers.begin(), scanned_.buffers.end());
  model::TensorBroadcast(own_.group_, std::move(all)).run();
  for (std::size_t i = 0; i < was_.size(); ++i)
    if (!was_[i]) scanned_.trained[i].tensor.mutable_grad().reset();  // of passes before
}

// A forward pass may have used them, so that it is too late to change them.
void Rebuilding::require_alike_newcomers() const {
  Model newcomers;
  const optim::TensorSet frozen = set_of(own_.scanned_.frozen);
  for (std::size_t i = 0; i < was_.size(); ++i)
    if (!was_[i] && !frozen.contains(scanned_.trained[i].tensor.unsafeGetTensorImpl()))
      newcomers.parameters.push_back({scanned_.trained[i].name, scanned_.trained[i].tensor});
  const std::vector<std::string> digests = all_gather_text(own_.group_, parameter_digest(newcomers));
  for (std::size_t rank = 1; rank < digests.size(); ++rank)
    if (digests[rank] != digests[0])
      throw MismatchError(
          fmt::format("rank {}: the parameters that the optimiser was given, from '{}' on, have other values "
                      "on rank {} than "
                      "on rank 0: call rebuild() on every rank after adding them, which makes them rank 0's",
                      own_.group_.rank(), newcomers.parameters.front().name, rank));
}

bool Rebuilding::stays(const torch::Tensor& parameter) const {
  return std::any_of(scanned_.trained.begin(), scanned_.trained.end(),
                     [&](const auto& one) { return one.tensor.is_same(parameter); });
}

// From the engine, and from what was kept; what of it is not trained any more is kept.
void Rebuilding::move_states() {
  Engine& engine = *own_.engine_;
  std::vector<std::optional<OptimizerState>> before = engine.updates().state();
  for (std::size_t i = 0; i < was_.size(); ++i) {
    const torch::Tensor& parameter = scanned_.trained[i].tensor;
    states_.push_back(was_[i] ? std::exchange(before[*was_[i]], std::nullopt) : own_.kept_.take(parameter));
  }
  optim::TensorSet rest = set_of(scanned_.held);
  for (const torch::Tensor& gone : scanned_.gone) rest.erase(gone.unsafeGetTensorImpl());
  own_.kept_.forget_all_but(rest);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const torch::Tensor& parameter = own_.scanned_.trained[i].tensor;
    if (before[i] && rest.contains(parameter.unsafeGetTensorImpl())) own_.kept_.keep(parameter, *before[i]);
  }

  const CompressedBuckets::Memory memory = engine.compression().memory();
  for (const auto& was : was_) compression_.push_back(was ? memory[*was] : std::nullopt);
  compression_step_ = engine.compression().step();
  if (rules_.widening.rounding) rules_.widening.rounding->update = engine.updates().count();
  own_.earlier_compression_ = add(own_.earlier_compression_, engine.compression().counts());
  using Keep = RunRecord::Keep;
  own_.record_.engine_ends(engine, own_.options_.record_trace ? Keep::spans : Keep::nothing);
  own_.record_.layers_end();
  own_.observed_engine_.store(nullptr, std::memory_order_release);
  own_.engine_.reset();
}

// What is trained no longer gets memory of its own, so that nothing keeps the old buckets.
void Rebuilding::replace_scan() {
  const torch::NoGradGuard no_grad;
  for (TrainedParameter& parameter : own_.scanned_.trained) {
    if (stays(parameter.tensor)) continue;
    parameter.tensor.mutable_grad().reset();
    if (!own_.by_program()) parameter.tensor.set_data(parameter.tensor.detach().clone());
  }
  std::vector<std::optional<std::size_t>> now(own_.scanned_.trained.size());
  for (std::size_t i = 0; i < was_.size(); ++i)
    if (was_[i]) now[*was_[i]] = i;
  const std::vector<std::size_t> uses = own_.learning_->first_uses();
  own_.learning_.emplace(was_.size());
  for (const std::size_t parameter : uses)
    if (now[parameter]) own_.learning_->read(*now[parameter]);

  own_.arrivals_ = autograd::GradientArrivals(own_.arrivals_, was_);
  if (!own_.layers_.order.empty()) {
    own_.layers_ = Learning::with_newcomers(own_.layers_, was_, scanned_.trained);
    own_.arrivals_.set_layers(own_.layers_.layer_of);
  }
  own_.scanned_ = scanned_;
  own_.update_rules_ = rules_;
  own_.model_changes.begin();
  own_.shared_buffers.exchange_buffers();
}

void Rebuilding::make_engine() {
  for (std::size_t i = 0; i < was_.size(); ++i)
    if (!was_[i]) own_.arrivals_.set_used(i, scanned_.trained[i].tensor.grad().defined());
  own_.changes_->begin_anew(own_.reports.statistics().iterations);
  own_.recording_ = own_.options_.record_trace || own_.changes_->measures();
  own_.fusion_ = own_.changes_->first(
      workload_of(scanned_.trained, own_.layers_.order, own_.layers_.layer_of), own_.fusion_);
  own_.engine_ = own_.engines.make_engine();
  own_.engine_->updates().take_over(states_);
  own_.engine_->compression().set_memory(compression_);
  own_.engine_->compression().set_step(compression_step_);
  own_.observed_engine_.store(own_.engine_.get(), std::memory_order_release);
}

optim::TensorSet ModelChanges::in_buckets() const {
  return own_.engine_ && !own_.by_program() ? set_of(tensors_of(own_.scanned_.trained)) : optim::TensorSet();
}

void ModelChanges::begin() {
  own_.index_of_.clear();
  for (std::size_t i = 0; i < own_.scanned_.trained.size(); ++i)
    own_.index_of_[own_.scanned_.trained[i].tensor.unsafeGetTensorImpl()] = i;
  own_.seen_.assign(own_.scanned_.trained.size(), {});
  own_.hooks_.set(tensors_of(own_.scanned_.trained));
}

void ModelChanges::rebuild(const Model& model) {
  own_.throw_if_failed();
  own_.state_.require_between_steps("rebuild");
  require_no_join("rebuild()");
  if (own_.engine_) own_.waits.wait_for_all();
  agreement::meet(own_.group_, agreement::Call::rebuild, own_.record_.commits(own_.engine_.get()));
  Rebuilding rebuilding(own_, model, Rebuilding::Values::of_rank_0);
  own_.or_fail([&] { rebuilding.train("rebuild"); });
}

void ModelChanges::require_no_join(const char* what) const {
  if (!own_.participation_.joined()) return;
  throw ConfigError(fmt::format(
      "rank {}: {} cannot be followed by ranks that have run out of data: do that between two joins",
      own_.group_.rank(), what));
}

void ModelChanges::follow() {
  if (is_as_scanned(*own_.optimizer_, own_.scanned_)) return;
  if (!own_.alone_ && own_.state_.sends()) {  // what was frozen meanwhile ends with the step
    require_no_newcomers(own_.group_, *own_.optimizer_, own_.scanned_);
    return;
  }
  require_no_join("another set of trained parameters");
  const autograd::Unobserved unobserved;
  if (own_.engine_) own_.waits.blocking([this] { own_.engine_->conductor().synchronize(); });
  agreement::meet(own_.group_, agreement::Call::trained_parameters, own_.record_.commits(own_.engine_.get()));
  Rebuilding(own_, own_.scanned_.model, Rebuilding::Values::as_they_are).train("other parameters");
}

void ModelChanges::require_same_model() const {
  if (!source_) return;
  optim::TensorSet known = set_of(own_.scanned_.held);
  for (const torch::Tensor& gone : own_.scanned_.gone) known.erase(gone.unsafeGetTensorImpl());
  for (const auto& [name, tensor] : source_().parameters) {
    if (!tensor.defined() || tensor.numel() == 0 || !tensor.requires_grad()) continue;
    if (known.contains(tensor.unsafeGetTensorImpl())) continue;
    throw ConfigError(
        fmt::format("rank {}: parameter '{}' of the model is not trained, because it was replaced "
                    "or added later: "
                    "give it to the optimiser by add_param_group(), and call rebuild() on every rank",
                    own_.group_.rank(), name));
  }
}

}  // namespace dear::train
