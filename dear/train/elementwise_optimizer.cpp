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

// Stands in the user's object for the state that is elsewhere.
template <typename S>
struct Elsewhere : S {
  void serialize(torch::serialize::OutputArchive& /*archive*/) const override {
    throw ConfigError(
        "the state of this optimiser lies in shards, each with one rank's DataParallel, and cannot be saved "
        "yet: save "
        "the model alone");
  }
};
template <typename S>
std::unique_ptr<State> elsewhere() {
  return std::make_unique<Elsewhere<S>>();
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
  std::unique_ptr<State> (*elsewhere)();
};

template <typename Options>
bool equal(const torch::optim::OptimizerOptions& a, const torch::optim::OptimizerOptions& b) {
  return static_cast<const Options&>(a) == static_cast<const Options&>(b);
}

const Supported* find(const Optimizer& original) {
  namespace o = torch::optim;
  static const std::array<Supported, 5> kTable{
      {{typeid(o::SGD), untouched, make<o::SGD, o::SGDOptions>, read<o::SGDParamState>,
        write<o::SGDParamState>, equal<o::SGDOptions>, elsewhere<o::SGDParamState>},
       {typeid(o::Adam), untouched, make<o::Adam, o::AdamOptions>, read<o::AdamParamState>,
        write<o::AdamParamState>, equal<o::AdamOptions>, elsewhere<o::AdamParamState>},
       {typeid(o::AdamW), untouched, make<o::AdamW, o::AdamWOptions>, read<o::AdamWParamState>,
        write<o::AdamWParamState>, equal<o::AdamWOptions>, elsewhere<o::AdamWParamState>},
       {typeid(o::RMSprop), untouched, make<o::RMSprop, o::RMSpropOptions>, read<o::RMSpropParamState>,
        write<o::RMSpropParamState>, equal<o::RMSpropOptions>, elsewhere<o::RMSpropParamState>},
       {typeid(o::Adagrad), untouched_adagrad, make<o::Adagrad, o::AdagradOptions>,
        read<o::AdagradParamState>, write<o::AdagradParamState>, equal<o::AdagradOptions>,
        elsewhere<o::AdagradParamState>}}};
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
  for (auto& runs : runs_by_part) {
    auto& by_group = runs_.emplace_back(groups.size());
    for (FlatRun& run : runs) {
      torch::Tensor parameters = run.parameters;
      parameters.mutable_grad() = run.gradients;
      by_group[run.parameter_group].push_back({parameters, std::move(run.stretches)});
      groups[run.parameter_group].params().push_back(parameters);
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

// Each gets the state of its elements. `borders`: of the stretches with which a new run begins.
ElementwiseOptimizer::Runs ElementwiseOptimizer::cut(const Run& run,
                                                     const std::vector<std::size_t>& borders) {
  const Supported& access = *find(*twin_);
  const auto state = twin_->state().find(run.parameters.unsafeGetTensorImpl());
  Runs parts;
  for (std::size_t i = 0; i < borders.size(); ++i) {
    const std::size_t last = i + 1 < borders.size() ? borders[i + 1] : run.stretches.size();
    Run part{.updates = run.updates};
    const std::int64_t begin = run.stretches[borders[i]].begin;
    const std::int64_t count = run.stretches[last - 1].end - begin;
    for (std::size_t s = borders[i]; s < last; ++s) {
      Stretch stretch = run.stretches[s];
      stretch.begin -= begin;
      stretch.end -= begin;
      part.stretches.push_back(stretch);
    }
    part.parameters = run.parameters.narrow(0, begin, count);
    part.parameters.mutable_grad() = run.parameters.grad().narrow(0, begin, count);
    if (state != twin_->state().end()) {
      Remembered remembered = access.read(*state->second);
      for (torch::Tensor& vector : remembered.vectors)
        if (vector.defined()) vector = vector.narrow(0, begin, count).clone();
      twin_->state()[part.parameters.unsafeGetTensorImpl()] = access.write(remembered);
    }
    parts.push_back(std::move(part));
  }
  twin_->state().erase(run.parameters.unsafeGetTensorImpl());
  return parts;
}

// Cuts runs where neighbours are not of one kind.
void ElementwiseOptimizer::separate(Runs& runs,
                                    const std::function<std::int64_t(const Stretch&, const Run&)>& kind) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::size_t> borders{0};
    for (std::size_t s = 1; s < runs[i].stretches.size(); ++s)
      if (kind(runs[i].stretches[s], runs[i]) != kind(runs[i].stretches[s - 1], runs[i]))
        borders.push_back(s);
    if (borders.size() == 1) continue;
    Runs parts = cut(runs[i], borders);
    const auto at = runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(i));
    runs.insert(at, std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
    i += borders.size() - 1;
  }
}

void ElementwiseOptimizer::update(std::size_t part) {
  const auto unused = [](const Stretch& stretch, const Run& run) {
    return is_marked_unused(run.parameters.grad(), {stretch.begin, stretch.begin + stretch.elements});
  };
  for (std::size_t i = 0; i < twin_->param_groups().size(); ++i) {
    Runs& runs = runs_.at(part)[i];
    separate(runs, [&](const Stretch& stretch, const Run& run) { return unused(stretch, run) ? 1 : 0; });
    std::vector<torch::Tensor>& updated = twin_->param_groups()[i].params();
    updated.clear();
    for (Run& run : runs) {
      if (unused(run.stretches.front(), run)) continue;
      updated.push_back(run.parameters);
      ++run.updates;
    }
  }
  twin_->step();
}

ElementwiseOptimizer::StateVectors ElementwiseOptimizer::state_vectors() const {
  const Supported& access = *find(*twin_);
  StateVectors has{};
  for (const auto& item : twin_->state()) {
    const Remembered one = access.read(*item.second);
    for (std::size_t i = 0; i < kStateVectors; ++i) has[i] = has[i] || one.vectors[i].defined();
  }
  return has;
}

void ElementwiseOptimizer::read_updates(std::size_t part, std::vector<std::int64_t>& updates) const {
  for (const Runs& runs : runs_.at(part))
    for (const Run& run : runs)
      for (const Stretch& stretch : run.stretches)
        updates.at(stretch.tensor) = std::max(updates.at(stretch.tensor), run.updates);
}

void ElementwiseOptimizer::write_updates(std::size_t part, const std::vector<std::int64_t>& updates) {
  for (Runs& runs : runs_.at(part)) {
    separate(runs, [&](const Stretch& stretch, const Run&) { return updates.at(stretch.tensor); });
    for (Run& run : runs) run.updates = updates.at(run.stretches.front().tensor);
  }
}

// A run is a part of its bucket's flat vector, so it knows where it begins.
void ElementwiseOptimizer::read_state(std::size_t part, std::size_t vector, torch::Tensor& flat) const {
  const Supported& access = *find(*twin_);
  for (const Runs& runs : runs_.at(part)) {
    for (const Run& run : runs) {
      const auto state = twin_->state().find(run.parameters.unsafeGetTensorImpl());
      if (state == twin_->state().end()) continue;
      const torch::Tensor values = access.read(*state->second).vectors[vector];
      if (values.defined())
        flat.narrow(0, run.parameters.storage_offset(), run.parameters.numel()).copy_(values);
    }
  }
}

void ElementwiseOptimizer::write_state(std::size_t part, std::size_t vector, const torch::Tensor& flat) {
  const Supported& access = *find(*twin_);
  for (const Runs& runs : runs_.at(part)) {
    for (const Run& run : runs) {
      if (run.updates == 0) continue;
      std::unique_ptr<State>& state = twin_->state()[run.parameters.unsafeGetTensorImpl()];
      Remembered remembered = state ? access.read(*state) : Remembered{};
      remembered.steps = run.updates;
      remembered.vectors[vector] =
          flat.narrow(0, run.parameters.storage_offset(), run.parameters.numel()).clone();
      state = access.write(remembered);
    }
  }
}

// Under a key that no tensor has.
StateElsewhere::StateElsewhere(Optimizer& original) : original_(original) {
  std::unique_ptr<State> stand_in = find(original)->elsewhere();
  stands_in_ = stand_in.get();
  original.state()[&original] = std::move(stand_in);
  size_ = original.state().size();
}

StateElsewhere::~StateElsewhere() {
  if (holds()) original_.state().erase(&original_);
}

bool StateElsewhere::holds() const {
  const auto found = original_.state().find(&original_);
  return original_.state().size() == size_ && found != original_.state().end() &&
         found->second.get() == stands_in_;
}

namespace {

template <typename Bits>
bool all_are(const torch::Tensor& values, const Range& elements, Bits bits) {
  const auto* all = static_cast<const Bits*>(values.const_data_ptr());
  return std::all_of(all + elements.begin, all + elements.end, [bits](Bits value) { return value == bits; });
}

// In all elements the bits of +0.0, or of -0.0.
bool all_zero(const torch::Tensor& values, const Range& elements, std::uint64_t sign) {
  switch (values.element_size()) {
    case 2:
      return all_are(values, elements, static_cast<std::uint16_t>(sign << 15U));
    case 4:
      return all_are(values, elements, static_cast<std::uint32_t>(sign << 31U));
    default:
      return all_are(values, elements, sign << 63U);
  }
}

}  // namespace

void mark_unused(torch::Tensor& gradients, const Range& elements) {
  if (!all_zero(gradients, elements, 0)) return;
  gradients.narrow(0, elements.begin, elements.size()).fill_(-0.0);
}

bool is_marked_unused(const torch::Tensor& gradients, const Range& elements) {
  return all_zero(gradients, elements, 1);
}

}  // namespace dear::train
