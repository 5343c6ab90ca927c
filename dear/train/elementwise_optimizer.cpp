#include "dear/train/elementwise_optimizer.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <c10/util/C++17.h>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "dear/base/error.h"

namespace dear::train {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

template <typename O, typename Options>
std::unique_ptr<Optimizer> make(const Optimizer& original, std::vector<OptimizerParamGroup> groups) {
  return std::make_unique<O>(std::move(groups), static_cast<const Options&>(original.defaults()));
}

bool untouched(const Optimizer& original) { return original.state().empty(); }

// Adagrad makes its state when it is constructed.
bool untouched_adagrad(const Optimizer& original) {
  for (const auto& item : original.state()) {
    if (static_cast<const torch::optim::AdagradParamState&>(*item.second).step() != 0) return false;
  }
  return true;
}

// ---- State.

using Vectors = std::array<torch::Tensor, ElementwiseOptimizer::kStateVectors>;
using State = torch::optim::OptimizerParamState;

Vectors vectors_of(const torch::optim::SGDParamState& state) { return {state.momentum_buffer()}; }
template <typename AdamState>
Vectors vectors_of(const AdamState& state) {
  return {state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()};
}
Vectors vectors_of(const torch::optim::RMSpropParamState& state) {
  return {state.square_avg(), state.momentum_buffer(), state.grad_avg()};
}
Vectors vectors_of(const torch::optim::AdagradParamState& state) { return {state.sum()}; }

void set_vectors(torch::optim::SGDParamState& state, const Vectors& v) { state.momentum_buffer(v[0]); }
template <typename AdamState>
void set_vectors(AdamState& state, const Vectors& v) {
  state.exp_avg(v[0]);
  state.exp_avg_sq(v[1]);
  state.max_exp_avg_sq(v[2]);
}
void set_vectors(torch::optim::RMSpropParamState& state, const Vectors& v) {
  state.square_avg(v[0]);
  state.momentum_buffer(v[1]);
  state.grad_avg(v[2]);
}
void set_vectors(torch::optim::AdagradParamState& state, const Vectors& v) { state.sum(v[0]); }

template <typename S>
constexpr bool kCounts = !std::is_same_v<S, torch::optim::SGDParamState>;

struct Remembered {
  std::int64_t steps = 0;
  Vectors vectors;
};

template <typename S>
Remembered read(const State& state) {
  const auto& mine = static_cast<const S&>(state);
  Remembered remembered{.vectors = vectors_of(mine)};
  if constexpr (kCounts<S>) remembered.steps = mine.step();
  return remembered;
}

template <typename S>
std::unique_ptr<State> write(const Remembered& remembered) {
  auto state = std::make_unique<S>();
  set_vectors(*state, remembered.vectors);
  if constexpr (kCounts<S>) state->step(remembered.steps);
  return state;
}

struct Supported {
  const std::type_info& type;
  bool (*untouched)(const Optimizer&);
  std::unique_ptr<Optimizer> (*make)(const Optimizer&, std::vector<OptimizerParamGroup>);
  Remembered (*read)(const State&);
  std::unique_ptr<State> (*write)(const Remembered&);
  bool (*equal)(const torch::optim::OptimizerOptions&, const torch::optim::OptimizerOptions&);
};

template <typename Options>
bool equal(const torch::optim::OptimizerOptions& a, const torch::optim::OptimizerOptions& b) {
  return static_cast<const Options&>(a) == static_cast<const Options&>(b);
}

const Supported* find(const Optimizer& original) {
  namespace o = torch::optim;
  static const std::array<Supported, 5> kTable{
      {{typeid(o::SGD), untouched, make<o::SGD, o::SGDOptions>, read<o::SGDParamState>,
        write<o::SGDParamState>, equal<o::SGDOptions>},
       {typeid(o::Adam), untouched, make<o::Adam, o::AdamOptions>, read<o::AdamParamState>,
        write<o::AdamParamState>, equal<o::AdamOptions>},
       {typeid(o::AdamW), untouched, make<o::AdamW, o::AdamWOptions>, read<o::AdamWParamState>,
        write<o::AdamWParamState>, equal<o::AdamWOptions>},
       {typeid(o::RMSprop), untouched, make<o::RMSprop, o::RMSpropOptions>, read<o::RMSpropParamState>,
        write<o::RMSpropParamState>, equal<o::RMSpropOptions>},
       {typeid(o::Adagrad), untouched_adagrad, make<o::Adagrad, o::AdagradOptions>,
        read<o::AdagradParamState>, write<o::AdagradParamState>, equal<o::AdagradOptions>}}};
  for (const Supported& entry : kTable) {
    if (entry.type == typeid(original)) return &entry;
  }
  return nullptr;
}

}  // namespace

void ElementwiseOptimizer::require_supported(const Optimizer& original) {
  const Supported* entry = find(original);
  if (!entry) {
    throw ConfigError(
        fmt::format("the optimiser {} is not one whose update is known to be elementwise: use "
                    "torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad",
                    c10::demangle(typeid(original).name())));
  }
  if (!entry->untouched(original)) {
    throw ConfigError(
        "the optimiser has taken steps already, and their state would be lost: construct DataParallel "
        "with a fresh one");
  }
}

ElementwiseOptimizer::ElementwiseOptimizer(const Optimizer& original,
                                           std::vector<std::vector<FlatRun>> runs_by_part) {
  std::vector<OptimizerParamGroup> groups;
  for (const OptimizerParamGroup& group : original.param_groups()) {
    groups.emplace_back(std::vector<torch::Tensor>{}, group.options().clone());
  }
  for (const auto& runs : runs_by_part) {
    auto& by_group = parameters_.emplace_back(groups.size());
    for (const FlatRun& run : runs) {
      torch::Tensor parameters = run.parameters;
      parameters.mutable_grad() = run.gradients;
      by_group[run.rule].push_back(parameters);
      groups[run.rule].params().push_back(parameters);
    }
  }
  twin_ = find(original)->make(original, std::move(groups));
}

void ElementwiseOptimizer::capture_options(const Optimizer& original) {
  const auto& from = original.param_groups();
  auto& to = twin_->param_groups();
  if (from.size() != to.size()) {
    throw ConfigError(
        fmt::format("the optimiser has {} parameter groups now and had {} when DataParallel was made: "
                    "construct a new DataParallel after adding one",
                    from.size(), to.size()));
  }
  for (std::size_t i = 0; i < to.size(); ++i) to[i].set_options(from[i].options().clone());
}

bool ElementwiseOptimizer::has_options_of(const Optimizer& original) const {
  const Supported& access = *find(*twin_);
  const auto& theirs = original.param_groups();
  const auto& mine = twin_->param_groups();
  return std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                    [&](const OptimizerParamGroup& a, const OptimizerParamGroup& b) {
                      return access.equal(a.options(), b.options());
                    });
}

void ElementwiseOptimizer::update(std::size_t part) {
  for (std::size_t i = 0; i < twin_->param_groups().size(); ++i) {
    twin_->param_groups()[i].params() = parameters_.at(part)[i];
  }
  twin_->step();
}

ElementwiseOptimizer::StateOutline ElementwiseOptimizer::outline() const {
  const Supported& access = *find(*twin_);
  StateOutline outline;
  for (const auto& item : twin_->state()) {
    const Remembered one = access.read(*item.second);
    outline.steps = std::max(outline.steps, one.steps);
    for (std::size_t i = 0; i < kStateVectors; ++i)
      outline.has_vector[i] = outline.has_vector[i] || one.vectors[i].defined();
  }
  return outline;
}

// A run is a part of its bucket's flat vector, so it knows where it begins.
void ElementwiseOptimizer::read_state(std::size_t part, std::size_t vector, torch::Tensor& flat) const {
  const Supported& access = *find(*twin_);
  for (const auto& runs : parameters_.at(part)) {
    for (const torch::Tensor& run : runs) {
      const auto state = twin_->state().find(run.unsafeGetTensorImpl());
      if (state == twin_->state().end()) continue;
      const torch::Tensor values = access.read(*state->second).vectors[vector];
      if (values.defined()) flat.narrow(0, run.storage_offset(), run.numel()).copy_(values);
    }
  }
}

void ElementwiseOptimizer::write_state(const StateOutline& outline, std::size_t part, std::size_t vector,
                                       const torch::Tensor& flat) {
  const Supported& access = *find(*twin_);
  for (const auto& runs : parameters_.at(part)) {
    for (const torch::Tensor& run : runs) {
      std::unique_ptr<State>& state = twin_->state()[run.unsafeGetTensorImpl()];
      Remembered remembered = state ? access.read(*state) : Remembered{};
      remembered.steps = outline.steps;
      remembered.vectors[vector] = flat.narrow(0, run.storage_offset(), run.numel()).clone();
      state = access.write(remembered);
    }
  }
}

}  // namespace dear::train
