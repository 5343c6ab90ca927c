#include "dear/train/data_parallel/training_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/engine/sharing.h"
#include "dear/train/model/tensor_broadcast.h"

namespace dear::train {

namespace {

// Returns the outlines of what the program's optimiser alone remembers.
EngineState::Outlines outlines_of(const Optimizer& optimizer, const std::vector<TrainedParameter>& trained) {
  EngineState::Outlines outlines;
  for (const TrainedParameter& parameter : trained) {
    auto& outline = outlines.emplace_back();
    const std::optional<OptimizerState> state = optimizer.state(parameter.tensor);
    if (!state) continue;
    outline = {.vectors = {}, .scalars = state->scalars};
    for (const auto& vector : state->vectors) outline->vectors.insert(vector.first);
  }
  return outlines;
}

at::ScalarType state_type_under(const DataParallelOptions& options, at::ScalarType parameter) {
  const bool narrow = parameter == at::kHalf || parameter == at::kBFloat16;
  const bool rounded = options.stochastic_rounding && parameter == at::kBFloat16;
  return (options.fp32_masters && narrow) || rounded ? at::kFloat : parameter;
}

std::vector<std::optional<OptimizerState>> whole(const Restored& restored, const Group& group,
                                                 const std::vector<TrainedParameter>& trained,
                                                 const DataParallelOptions& options) {
  const EngineState::Values& from = restored.values;
  const bool own = from.holder != EngineState::Holder::rank_0 || group.rank() == 0;
  std::vector<std::optional<OptimizerState>> states(trained.size());
  std::vector<torch::Tensor> all;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    if (!restored.outlines[i]) continue;
    states[i] = OptimizerState{.vectors = {}, .scalars = restored.outlines[i]->scalars};
    for (const std::string& name : restored.outlines[i]->vectors) {
      const at::ScalarType type = state_type_under(options, trained[i].tensor.scalar_type());
      torch::Tensor values = torch::empty(trained[i].tensor.sizes(), torch::dtype(type));
      if (own) values.copy_(from.fetch(i, name));
      all.push_back(values);
      states[i]->vectors[name] = std::move(values);
    }
  }
  share(group, all, from.holder);
  return states;
}

}  // namespace

// A state on its way to the engine, which may not be there yet.
class TrainingState::Waiting : public optim::RestoredState {
 public:
  Waiting(DataParallel& parallel, Restored restored)
      : impl_(*parallel.trainer_), restored_(std::move(restored)) {}
  void give() override {
    EngineState(*impl_.engine_).replace(restored_.outlines, restored_.values);
    if (restored_.compression) impl_.engines.load_compression_states(*restored_.compression);
  }
  [[nodiscard]] std::vector<std::optional<OptimizerState>> whole() const override {
    return train::whole(restored_, impl_.group_, impl_.scanned_.trained, impl_.options_);
  }
  // Returns that of a trainer, which has it from a TrainingState.
  static const Restored& in(const Trainer& impl) {
    return static_cast<const Waiting&>(*impl.restored_).restored_;
  }

 private:
  Trainer& impl_;
  const Restored restored_;
};

void TrainingState::settle(DataParallel& parallel) {
  Trainer& impl = *parallel.trainer_;
  impl.throw_if_failed();
  impl.model_changes.require_no_join("saving or loading a checkpoint");
  impl.state_.require_between_steps("saving or loading a checkpoint");
  if (impl.passes.gradients_arrived())
    throw ConfigError(fmt::format(
        "rank {}: a checkpoint cannot be saved or loaded between backward and step(): do that after step()",
        impl.group_.rank()));
  if (impl.engine_) impl.waits.wait_for_all();
}

TrainingState::TrainingState(DataParallel& parallel) : parallel_(parallel) {
  settle(parallel);
  Trainer& impl = *parallel_.trainer_;
  agreement::meet(impl.group_, agreement::Call::checkpoint,
                  impl.alone_ ? 0 : impl.record_.commits(impl.engine_.get()));
  if (impl.engine_) impl.changes_->waited();
  look_up_buffers(impl.scanned_);
  for (std::size_t i = 0; i < trained().size(); ++i) index_of_[trained()[i].tensor.unsafeGetTensorImpl()] = i;
}

const Group& TrainingState::group() const { return parallel_.trainer_->group_; }
const Model& TrainingState::model() const { return parallel_.trainer_->scanned_.model; }
const std::vector<TrainedParameter>& TrainingState::trained() const {
  return parallel_.trainer_->scanned_.trained;
}
const std::vector<TrainedParameter>& TrainingState::trained(const DataParallel& parallel) {
  return parallel.trainer_->scanned_.trained;
}
std::optional<std::size_t> TrainingState::index_of(const torch::Tensor& tensor) const {
  const auto found = index_of_.find(tensor.unsafeGetTensorImpl());
  return found == index_of_.end() ? std::nullopt : std::optional(found->second);
}
Optimizer& TrainingState::optimizer() const { return *parallel_.trainer_->optimizer_; }
at::ScalarType TrainingState::state_type(at::ScalarType parameter) const {
  return state_type_under(parallel_.trainer_->options_, parameter);
}
bool TrainingState::fp32_masters() const { return parallel_.trainer_->options_.fp32_masters; }

EngineState::Outlines TrainingState::outlines() {
  Trainer& impl = *parallel_.trainer_;
  if (impl.has_state()) return EngineState(*impl.engine_).outlines();
  return impl.restored_ ? Waiting::in(impl).outlines : outlines_of(optimizer(), trained());
}

void TrainingState::visit(const EngineState::Outlines& outlines, const EngineState::Visit& visit) {
  Trainer& impl = *parallel_.trainer_;
  if (impl.has_state()) {
    EngineState(*impl.engine_).visit(outlines, visit);
    return;
  }
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const auto states = impl.restored_ ? impl.restored_->whole() : std::vector<std::optional<OptimizerState>>();
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    if (!outlines[i]) continue;
    const OptimizerState state =
        impl.restored_ ? *states[i] : optimizer().state(trained()[i].tensor).value_or(OptimizerState{});
    for (const auto& [name, values] : state.vectors) visit(i, name, values);
  }
}

void TrainingState::visit_own(const std::function<void(const EngineState::Piece&)>& visit) {
  Trainer& impl = *parallel_.trainer_;
  if (impl.has_state()) return EngineState(*impl.engine_).visit_own(visit);
  // Every rank has all of it: each saves the tensors that are its turn.
  this->visit(outlines(), [&](std::size_t i, const std::string& vector, const torch::Tensor& values) {
    if (static_cast<int>(i % static_cast<std::size_t>(group().size())) != group().rank()) return;
    const torch::Tensor dense = torch::empty_strided(values.sizes(), trained()[i].strides, values.options());
    visit({.parameter = i, .vector = vector, .begin = 0, .values = flat_view(dense.copy_(values))});
  });
}

std::optional<CompressionStates> TrainingState::compression() {
  Trainer& impl = *parallel_.trainer_;
  if (!impl.options_.compression) return std::nullopt;
  if (impl.engine_) return impl.engines.compression_states();
  return impl.restored_ ? Waiting::in(impl).compression : std::nullopt;
}

// With one copy a write would be one for all ranks: parameters get new memory, which the next step() takes
// over.
void TrainingState::set_model(const Value& value, EngineState::Holder holder) {
  Trainer& impl = *parallel_.trainer_;
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const bool own = holder != EngineState::Holder::rank_0 || group().rank() == 0;
  std::vector<torch::Tensor> written;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> replaced;
  const auto set = [&](const Model::Named& one, bool replace) {
    const torch::Tensor into = replace ? one.tensor.detach().clone() : one.tensor.detach();
    const torch::Tensor values = own ? value(one.name) : torch::Tensor();
    if (values.defined()) into.copy_(values);
    if (values.defined() || holder != EngineState::Holder::spread) written.push_back(into);
    if (replace) replaced.emplace_back(one.tensor, into);
  };
  optim::TensorSet named;
  for (const Model::Named& parameter : model().parameters) {
    named.insert(parameter.tensor.unsafeGetTensorImpl());
    set(parameter, impl.engine_ && impl.options_.one_copy && parameter.tensor.requires_grad());
  }
  for (const Model::Named& buffer : model().buffers) set(buffer, false);
  for (const TrainedParameter& parameter : trained()) {
    if (!named.contains(parameter.tensor.unsafeGetTensorImpl()))  // the optimiser alone holds it
      set({parameter.name, parameter.tensor}, impl.engine_ && impl.options_.one_copy);
  }
  share(group(), written, holder);
  for (auto& [tensor, values] : replaced) tensor.set_data(values);
}

void TrainingState::set_optimizer(Restored restored) {
  Trainer& impl = *parallel_.trainer_;
  if (impl.by_program()) {
    const auto states = whole(restored, group(), trained(), impl.options_);
    for (std::size_t i = 0; i < states.size(); ++i) optimizer().set_state(trained()[i].tensor, states[i]);
    if (!restored.compression) return;
    restored.outlines.assign(states.size(), std::nullopt);  // what is left is the compression's
  }
  auto waiting = std::make_unique<Waiting>(parallel_, std::move(restored));
  if (impl.engine_) {
    impl.or_fail([&] { waiting->give(); });
  } else {
    impl.restored_ = std::move(waiting);
  }
}

}  // namespace dear::train
