// The optimisers of libtorch's C++ interface.

// size: five classes by one table, their flat optimisers, and what the engine asks of both

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/optim/class_access.h"
#include "dear/train/optim/optimizer.h"
#include "dear/train/optim/tensor_norm_optimizer.h"
#include "dear/train/optim/torch_options.h"

namespace dear {
namespace {

namespace libtorch = torch::optim;
using State = libtorch::OptimizerParamState;
using Groups = std::vector<libtorch::OptimizerParamGroup>;
using optim::ClassAccess;

// ---- State. Vectors are told apart by the names that Python's torch.optim gives them.

// Calls see(name, vector) for each vector that a state may have.
template <typename See>
void for_each_vector(libtorch::SGDParamState& s, const See& see) {
  see("momentum_buffer", s.momentum_buffer());
}
template <typename AdamState, typename See>
void for_each_vector(AdamState& s, const See& see) {
  see("exp_avg", s.exp_avg());
  see("exp_avg_sq", s.exp_avg_sq());
  see("max_exp_avg_sq", s.max_exp_avg_sq());
}
template <typename See>
void for_each_vector(libtorch::RMSpropParamState& s, const See& see) {
  see("square_avg", s.square_avg());
  see("momentum_buffer", s.momentum_buffer());
  see("grad_avg", s.grad_avg());
}
template <typename See>
void for_each_vector(libtorch::AdagradParamState& s, const See& see) {
  see("sum", s.sum());
}

template <typename S>
constexpr bool kTakesNorms = std::is_same_v<S, TensorNormState>;
template <typename S>
constexpr bool kCounts = !std::is_same_v<S, libtorch::SGDParamState>;

template <typename S>
OptimizerState read(const State& state) {
  S mine = static_cast<const S&>(state);
  OptimizerState result;
  std::int64_t steps = 0;
  if constexpr (kTakesNorms<S>) {
    result.vectors = mine.vectors;
    steps = mine.step;
  } else {
    for_each_vector(mine, [&](const char* name, const torch::Tensor& vector) {
      if (vector.defined()) result.vectors.emplace(name, vector);
    });
    if constexpr (kCounts<S>) steps = mine.step();
  }
  if (kCounts<S>) result.scalars.assign(reinterpret_cast<const char*>(&steps), sizeof steps);
  return result;
}

template <typename S>
std::unique_ptr<State> write(const OptimizerState& from) {
  auto state = std::make_unique<S>();
  std::int64_t steps = 0;
  std::memcpy(&steps, from.scalars.data(), std::min(sizeof steps, from.scalars.size()));
  if constexpr (kTakesNorms<S>) {
    state->vectors = from.vectors;
    state->step = steps;
  } else {
    for_each_vector(*state, [&](const char* name, torch::Tensor& vector) {
      if (const auto found = from.vectors.find(name); found != from.vectors.end()) vector = found->second;
    });
    if constexpr (kCounts<S>) state->step(steps);
  }
  return state;
}

// ---- Classes.

template <typename Options>
bool equal(const libtorch::OptimizerOptions& a, const libtorch::OptimizerOptions& b) {
  return static_cast<const Options&>(a) == static_cast<const Options&>(b);
}

template <typename O, typename Options, typename S>
ClassAccess access_to() {
  return {typeid(O), true,           optim::make_with<O, Options>, read<S>,
          write<S>,  equal<Options>, optim::elsewhere<S>};
}

std::unique_ptr<libtorch::Optimizer> make_like(const libtorch::Optimizer& original, Groups groups) {
  return static_cast<const TensorNormOptimizer&>(original).make_like(std::move(groups));
}

// Null for a class that is not known.
const ClassAccess* find(const libtorch::Optimizer& optimizer) {
  static const ClassAccess kTensorNorms{typeid(TensorNormOptimizer),
                                        true,
                                        make_like,
                                        read<TensorNormState>,
                                        write<TensorNormState>,
                                        optim::never_equal,  // they take no updates ahead of the commit
                                        optim::elsewhere<TensorNormState>};
  if (dynamic_cast<const TensorNormOptimizer*>(&optimizer) != nullptr) return &kTensorNorms;
  static const std::array<ClassAccess, 5> kTable{
      {access_to<libtorch::SGD, libtorch::SGDOptions, libtorch::SGDParamState>(),
       access_to<libtorch::Adam, libtorch::AdamOptions, libtorch::AdamParamState>(),
       access_to<libtorch::AdamW, libtorch::AdamWOptions, libtorch::AdamWParamState>(),
       access_to<libtorch::RMSprop, libtorch::RMSpropOptions, libtorch::RMSpropParamState>(),
       access_to<libtorch::Adagrad, libtorch::AdagradOptions, libtorch::AdagradParamState>()}};
  for (const ClassAccess& entry : kTable) {
    if (entry.type == typeid(optimizer)) return &entry;
  }
  return nullptr;
}

std::optional<OptimizerState> read_state(const libtorch::Optimizer& optimizer, const ClassAccess& access,
                                         const torch::Tensor& tensor) {
  const auto found = optimizer.state().find(tensor.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return std::nullopt;
  return access.read(*found->second);
}

// Adagrad makes its state when it is constructed.
void begin_adagrad(libtorch::Optimizer& adagrad) {
  for (const auto& group : adagrad.param_groups()) {
    const auto& options = static_cast<const libtorch::AdagradOptions&>(group.options());
    for (const torch::Tensor& tensor : group.params()) {
      auto state = std::make_unique<libtorch::AdagradParamState>();
      state->sum(torch::full_like(tensor, options.initial_accumulator_value()));
      adagrad.state()[tensor.unsafeGetTensorImpl()] = std::move(state);
    }
  }
}

class FlatTorch : public FlatOptimizer {
 public:
  FlatTorch(const libtorch::Optimizer& original, const ClassAccess& access)
      : original_(original), access_(access) {
    Groups groups;
    for (const auto& group : original.param_groups())
      groups.emplace_back(std::vector<torch::Tensor>{}, group.options().clone());
    flat_ = access_.make(original, std::move(groups));
  }

  void capture_options() override {
    const auto& from = original_.param_groups();
    auto& to = flat_->param_groups();
    for (std::size_t i = 0; i < to.size(); ++i) to[i].set_options(from.at(i).options().clone());
  }
  [[nodiscard]] bool has_current_options() const override {
    const auto& theirs = original_.param_groups();
    const auto& mine = flat_->param_groups();
    return std::equal(
        mine.begin(), mine.end(), theirs.begin(), theirs.end(),
        [this](const auto& a, const auto& b) { return access_.equal(a.options(), b.options()); });
  }
  void step(const std::vector<std::vector<torch::Tensor>>& by_group) override {
    for (std::size_t i = 0; i < by_group.size(); ++i) flat_->param_groups()[i].params() = by_group[i];
    flat_->step();
  }
  // SGD counts no steps, which the host would have to know.
  [[nodiscard]] bool skips_on_device() const override {
    const libtorch::Optimizer& flat = *flat_;
    return typeid(flat) == typeid(libtorch::SGD);
  }
  void step_unless(const std::vector<std::vector<torch::Tensor>>& by_group,
                   const torch::Tensor& found) override {
    const torch::NoGradGuard no_grad;
    std::vector<std::pair<torch::Tensor, torch::Tensor>> before;
    const auto keep = [&](const torch::Tensor& tensor) { before.emplace_back(tensor, tensor.clone()); };
    for (const auto& group : by_group)
      for (const torch::Tensor& tensor : group) {
        keep(tensor);
        if (const std::optional<OptimizerState> state = read_state(*flat_, access_, tensor))
          for (const auto& vector : state->vectors) keep(vector.second);
      }
    step(by_group);
    const torch::Tensor skip = found.to(torch::kBool);
    for (auto& [tensor, kept] : before) tensor.copy_(torch::where(skip, kept, tensor));
  }
  std::vector<ExactSum> begin_step(const std::vector<std::vector<torch::Tensor>>& by_group) override {
    const torch::NoGradGuard no_grad;
    auto& flat = static_cast<TensorNormOptimizer&>(*flat_);
    std::vector<ExactSum> sums;
    for (std::size_t i = 0; i < by_group.size(); ++i) {
      const auto& options = flat.param_groups()[i].options();
      for (const torch::Tensor& part : by_group[i]) {
        begun_.push_back({part, options, flat.propose(part, options, flat.state_of(part))});
        for (const torch::Tensor& tensor : begun_.back().proposed) sums.push_back(sum_of_squares(tensor));
      }
    }
    return sums;
  }
  void end_step(const std::vector<double>& norms) override {
    const torch::NoGradGuard no_grad;
    auto& flat = static_cast<TensorNormOptimizer&>(*flat_);
    auto next = norms.begin();
    for (Begun& begun : std::exchange(begun_, {})) {
      const auto end = next + static_cast<std::ptrdiff_t>(begun.proposed.size());
      flat.apply(begun.part, begun.options, flat.state_of(begun.part), begun.proposed, {next, end});
      next = end;
    }
  }
  [[nodiscard]] std::optional<OptimizerState> state(std::size_t /*group*/,
                                                    const torch::Tensor& tensor) const override {
    return read_state(*flat_, access_, tensor);
  }
  void set_state(std::size_t /*group*/, const torch::Tensor& tensor,
                 const std::optional<OptimizerState>& state) override {
    if (state) {
      flat_->state()[tensor.unsafeGetTensorImpl()] = access_.write(*state);
    } else {
      flat_->state().erase(tensor.unsafeGetTensorImpl());
    }
  }

 private:
  struct Begun {
    torch::Tensor part;
    const libtorch::OptimizerOptions& options;
    std::vector<torch::Tensor> proposed;
  };

  const libtorch::Optimizer& original_;
  const ClassAccess& access_;
  std::unique_ptr<libtorch::Optimizer> flat_;
  std::vector<Begun> begun_;
};

class OfTorch : public Optimizer {
 public:
  // `access` is null for a class that is not known.
  OfTorch(libtorch::Optimizer& original, const ClassAccess* access) : original_(original), access_(access) {}
  ~OfTorch() override { OfTorch::state_returns(); }
  OfTorch(const OfTorch&) = delete;
  OfTorch& operator=(const OfTorch&) = delete;

  [[nodiscard]] std::string name() const override { return c10::demangle(typeid(original_).name()); }
  std::optional<std::string> choose_updates(Updates updates, Ownership ownership) override {
    if (typeid(original_) == typeid(libtorch::LBFGS))
      throw ConfigError(
          "LBFGS cannot train on several ranks: it evaluates its closure, which is a whole step for a "
          "DataParallel, many times in one step, and its direction comes from dot products over all "
          "parameters: use torch::optim::AdamW");
    if (updates == Updates::program) return "DataParallelOptions::updates says so";
    std::string why;
    if (access_ == nullptr)
      why = fmt::format(
          "the optimiser {} is not one whose update is known to be elementwise, as that of "
          "torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad, dear::LAMB or dear::LARS is (of a class that "
          "updates each tensor by itself, make_optimizer<Class, Options, State>() of "
          "dear/train/optim/class_access.h with Ownership::automatic makes whole tensors of shards)",
          name());
    else if (!access_->elementwise && ownership == Ownership::cut)
      why = fmt::format(
          "the optimiser {} updates whole tensors, which shards cut (DataParallelOptions::ownership = "
          "Ownership::automatic makes whole tensors of shards)",
          name());
    if (!why.empty() && updates == Updates::sharded) throw ConfigError(why);
    ownership_ = ownership;
    if (why.empty()) return std::nullopt;
    return why;
  }
  [[nodiscard]] std::vector<std::vector<torch::Tensor>> parameter_groups() const override {
    std::vector<std::vector<torch::Tensor>> groups;
    for (const auto& group : original_.param_groups()) groups.push_back(group.params());
    return groups;
  }
  [[nodiscard]] bool holds(const std::vector<std::vector<const c10::TensorImpl*>>& by_group) const override {
    const auto same = [](const torch::Tensor& tensor, const c10::TensorImpl* other) {
      return tensor.unsafeGetTensorImpl() == other;
    };
    const auto alike = [&](const libtorch::OptimizerParamGroup& group, const auto& others) {
      const auto& tensors = group.params();
      return std::equal(tensors.begin(), tensors.end(), others.begin(), others.end(), same);
    };
    const auto& groups = original_.param_groups();
    return std::equal(groups.begin(), groups.end(), by_group.begin(), by_group.end(), alike);
  }
  [[nodiscard]] FlatVectors vectors(std::size_t /*group*/) const override {
    return {.joined = norms() == 0, .whole = ownership_ == Ownership::whole || !access_->elementwise};
  }
  [[nodiscard]] std::size_t norms() const override {
    const auto* takes_norms = dynamic_cast<const TensorNormOptimizer*>(&original_);
    return takes_norms == nullptr ? 0 : takes_norms->norms();
  }
  [[nodiscard]] std::string options() const override {
    torch::serialize::OutputArchive all;
    for (std::size_t i = 0; i < original_.param_groups().size(); ++i) {
      torch::serialize::OutputArchive one;
      original_.param_groups()[i].options().serialize(one);
      all.write(fmt::format("group{}", i), one);
    }
    std::ostringstream text;
    all.save_to(text);
    return text.str();
  }
  void set_options(const std::string& options) override {
    torch::serialize::InputArchive all;
    std::istringstream text(options);
    all.load_from(text);
    for (std::size_t i = 0; i < original_.param_groups().size(); ++i) {
      torch::serialize::InputArchive one;
      all.read(fmt::format("group{}", i), one);
      original_.param_groups()[i].options().serialize(one);
    }
  }
  void step() override { original_.step(); }
  [[nodiscard]] std::unique_ptr<FlatOptimizer> make_flat() const override {
    return std::make_unique<FlatTorch>(original_, *access_);
  }
  [[nodiscard]] std::optional<OptimizerState> state(const torch::Tensor& tensor) const override {
    require_access();
    return read_state(original_, *access_, tensor);
  }
  void set_state(const torch::Tensor& tensor, const std::optional<OptimizerState>& state) override {
    require_access();
    original_.state().erase(tensor.unsafeGetTensorImpl());
    if (state) original_.state()[tensor.unsafeGetTensorImpl()] = access_->write(*state);
  }
  [[nodiscard]] std::vector<Options> group_options() const override {
    std::vector<Options> groups;
    for (auto& group : original_.param_groups()) groups.push_back(optim::read_options(group.options()));
    return groups;
  }
  void set_group_options(const std::vector<Options>& options) override {
    for (std::size_t i = 0; i < options.size() && i < original_.param_groups().size(); ++i)
      optim::write_options(original_.param_groups()[i].options(), options[i]);
  }
  // The only scalar is a count of steps.
  [[nodiscard]] std::map<std::string, double> read_scalars(const std::string& scalars) const override {
    std::int64_t steps = 0;
    if (scalars.size() != sizeof steps) return {};
    std::memcpy(&steps, scalars.data(), sizeof steps);
    return {{"step", static_cast<double>(steps)}};
  }
  [[nodiscard]] std::string write_scalars(const std::map<std::string, double>& numbers) const override {
    const auto found = numbers.find("step");
    if (found == numbers.end()) return {};
    const auto steps = static_cast<std::int64_t>(found->second);
    return {reinterpret_cast<const char*>(&steps), sizeof steps};
  }

  // Under a key that no tensor has.
  void state_leaves() override {
    std::unique_ptr<State> stand_in = access_->elsewhere();
    stands_in_ = stand_in.get();
    original_.state().clear();
    original_.state()[&original_] = std::move(stand_in);
  }
  void state_returns() noexcept override {
    if (stands_in_ && OfTorch::state_is_away()) {
      original_.state().clear();
      if (typeid(original_) == typeid(libtorch::Adagrad)) begin_adagrad(original_);
    }
    stands_in_ = nullptr;
  }
  [[nodiscard]] bool state_is_away() const override {
    const auto found = original_.state().find(&original_);
    return original_.state().size() == 1 && found != original_.state().end() &&
           found->second.get() == stands_in_;
  }

 private:
  void require_access() const {
    if (access_ == nullptr)
      throw ConfigError(fmt::format(
          "the state of the optimiser {} can be read by its own save() alone: save it beside the model, or "
          "make it known by make_optimizer<Class, Options, State>() (dear/train/optim/class_access.h)",
          name()));
  }

  libtorch::Optimizer& original_;
  const ClassAccess* access_;
  Ownership ownership_ = Ownership::cut;
  const State* stands_in_ = nullptr;
};

}  // namespace

void FlatOptimizer::step_unless(const std::vector<std::vector<torch::Tensor>>& /*by_group*/,
                                const torch::Tensor& /*found*/) {
  throw ConfigError("this optimiser has no step that a device decides on");
}
std::vector<ExactSum> FlatOptimizer::begin_step(const std::vector<std::vector<torch::Tensor>>& /*by_group*/) {
  throw ConfigError("this optimiser takes no norms of tensors");
}
void FlatOptimizer::end_step(const std::vector<double>& /*norms*/) {
  throw ConfigError("this optimiser takes no norms of tensors");
}

std::unique_ptr<Optimizer> make_optimizer(torch::optim::Optimizer& optimizer) {
  return std::make_unique<OfTorch>(optimizer, find(optimizer));
}

std::unique_ptr<Optimizer> optim::make_optimizer(torch::optim::Optimizer& optimizer,
                                                 const ClassAccess& access) {
  return std::make_unique<OfTorch>(optimizer, &access);
}

}  // namespace dear
