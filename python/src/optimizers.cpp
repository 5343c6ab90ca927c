// The optimiser of a program in Python, as the engine asks for it.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/optim/optimizer.h"
#include "python/src/held.h"
#include "python/src/parts.h"

namespace dear::python {

std::optional<OptimizerState> to_state(const py::object& object) {
  const auto state = object.cast<PythonState>();
  if (!state) return std::nullopt;
  return OptimizerState{.vectors = state->first, .scalars = state->second};
}

PythonState from_state(const std::optional<OptimizerState>& state) {
  if (!state) return std::nullopt;
  return std::pair(state->vectors, py::bytes(state->scalars));
}

namespace {

// dear._flat_optimizer.FlatOptimizer as the engine calls it, mostly from the thread of the update lane.
class PythonFlat : public FlatOptimizer {
 public:
  explicit PythonFlat(py::object flat) : flat_(std::move(flat)) {}

  void capture_options() override { flat_.call_method("capture_options"); }
  [[nodiscard]] bool has_current_options() const override {
    return flat_.call_method<bool>("has_current_options");
  }
  [[nodiscard]] std::vector<torch::Tensor> option_tensors() const override {
    return flat_.call_method<std::vector<torch::Tensor>>("option_tensors");
  }
  void step(const std::vector<std::vector<torch::Tensor>>& by_group) override {
    flat_.call_method("step", by_group);
  }
  [[nodiscard]] bool skips_on_device() const override { return flat_.call_method<bool>("skips_on_device"); }
  void step_unless(const std::vector<std::vector<torch::Tensor>>& by_group,
                   const torch::Tensor& found) override {
    flat_.call_method("step_unless", by_group, found);
  }
  std::vector<ExactSum> begin_step(const std::vector<std::vector<torch::Tensor>>& by_group) override {
    std::vector<ExactSum> sums;
    for (const auto& tensor : flat_.call_method<std::vector<torch::Tensor>>("begin_step", by_group))
      sums.push_back(sum_of_squares(tensor));
    return sums;
  }
  void end_step(const std::vector<double>& norms) override { flat_.call_method("end_step", norms); }
  [[nodiscard]] std::optional<OptimizerState> state(std::size_t group,
                                                    const torch::Tensor& tensor) const override {
    return flat_.under_lock(
        [&](const py::object& flat) { return to_state(flat.attr("state")(group, tensor)); });
  }
  void set_state(std::size_t group, const torch::Tensor& tensor,
                 const std::optional<OptimizerState>& state) override {
    flat_.under_lock(
        [&](const py::object& flat) { flat.attr("set_state")(group, tensor, from_state(state)); });
  }

 private:
  Held flat_;
};

// The names stand in the order of Ownership and Updates.
constexpr std::array<const char*, 3> kOwnerships{"cut", "auto", "whole"};
constexpr std::array<const char*, 3> kUpdates{"auto", "sharded", "program"};

// dear._optimizer.Source as the engine calls it.
class Source : public Optimizer {
 public:
  explicit Source(py::object source) : source_(std::move(source)) {}

  [[nodiscard]] std::string name() const override { return source_.call_method<std::string>("name"); }
  std::optional<std::string> choose_updates(Updates updates, Ownership ownership) override {
    return source_.call_method<std::optional<std::string>>(
        "choose_updates", kUpdates.at(static_cast<std::size_t>(updates)),
        kOwnerships.at(static_cast<std::size_t>(ownership)));
  }
  [[nodiscard]] std::vector<std::vector<torch::Tensor>> parameter_groups() const override {
    return source_.call_method<std::vector<std::vector<torch::Tensor>>>("parameter_groups");
  }
  // It makes no call into Python: a rank that trains alone waits for it.
  [[nodiscard]] bool holds(const std::vector<std::vector<const c10::TensorImpl*>>& by_group) const override {
    const auto is = [](const py::handle& tensor, const c10::TensorImpl* other) {
      return THPVariable_Check(tensor.ptr()) &&
             THPVariable_Unpack(tensor.ptr()).unsafeGetTensorImpl() == other;
    };
    return source_.under_lock([&](const py::object& source) {
      const py::frozenset apart = source.attr("apart");
      const auto is_apart = [&](const py::handle& tensor) {
        return !apart.empty() &&
               apart.contains(py::reinterpret_steal<py::int_>(PyLong_FromVoidPtr(tensor.ptr())));
      };
      const auto alike = [&](const py::handle& group, const auto& others) {
        auto other = others.begin();
        for (const py::handle tensor : py::list(group["params"])) {
          if (is_apart(tensor)) continue;
          if (other == others.end() || !is(tensor, *other++)) return false;
        }
        return other == others.end();
      };
      const py::list groups = source.attr("original").attr("param_groups");
      return std::equal(groups.begin(), groups.end(), by_group.begin(), by_group.end(), alike);
    });
  }
  [[nodiscard]] FlatVectors vectors(std::size_t group) const override {
    const auto [longest, joined, whole] =
        source_.call_method<std::tuple<std::int64_t, bool, bool>>("vectors", group);
    return {.longest = longest, .joined = joined, .whole = whole};
  }
  [[nodiscard]] std::size_t norms() const override { return source_.call_method<std::size_t>("norms"); }
  [[nodiscard]] std::string options() const override { return source_.call_method<std::string>("options"); }
  void set_options(const std::string& options) override {
    source_.under_lock([&](const py::object& source) { source.attr("set_options")(py::bytes(options)); });
  }
  void step() override {
    source_.under_lock([](const py::object& source) { or_python_error([&] { source.attr("step")(); }); });
  }
  [[nodiscard]] std::unique_ptr<FlatOptimizer> make_flat() const override {
    return source_.under_lock(
        [](const py::object& source) { return std::make_unique<PythonFlat>(source.attr("make_flat")()); });
  }
  [[nodiscard]] std::optional<OptimizerState> state(const torch::Tensor& tensor) const override {
    return source_.under_lock(
        [&](const py::object& source) { return to_state(source.attr("state")(tensor)); });
  }
  void set_state(const torch::Tensor& tensor, const std::optional<OptimizerState>& state) override {
    source_.under_lock(
        [&](const py::object& source) { source.attr("set_state")(tensor, from_state(state)); });
  }
  void state_leaves() override { source_.call_method("state_leaves"); }
  void state_returns() noexcept override {}
  [[nodiscard]] bool state_is_away() const override { return source_.call_method<bool>("state_is_away"); }

 private:
  Held source_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(std::vector<py::object> sources) {
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (py::object& source : sources) optimizers.push_back(std::make_unique<Source>(std::move(source)));
  return dear::make_optimizer(std::move(optimizers));
}

Ownership ownership_of(const std::string& name) {
  const auto* found = std::find(kOwnerships.begin(), kOwnerships.end(), name);
  if (found == kOwnerships.end())
    throw ConfigError("ownership=\"" + name + "\": there are \"cut\", \"auto\" and \"whole\"");
  return static_cast<Ownership>(found - kOwnerships.begin());
}

Updates updates_of(const std::string& name) {
  const auto* found = std::find(kUpdates.begin(), kUpdates.end(), name);
  if (found == kUpdates.end())
    throw ConfigError("update=\"" + name + "\": there are \"auto\", \"sharded\" and \"program\"");
  return static_cast<Updates>(found - kUpdates.begin());
}

UpdateCost update_cost_of(py::object function) {
  if (function.is_none()) return {};
  return [kept = Held(std::move(function))](const std::string& name, const torch::Tensor& parameter) {
    return kept.call<double>(name, parameter);
  };
}

std::function<std::vector<Model::Named>()> buffers_of(py::object function) {
  return [kept = Held(std::move(function))] {
    std::vector<Model::Named> buffers;
    for (const auto& [name, tensor] : kept.call<std::vector<std::pair<std::string, at::Tensor>>>())
      buffers.push_back({name, tensor});
    return buffers;
  };
}

std::function<bool()> predicate_of(py::object function) {
  if (function.is_none()) return {};
  return [kept = Held(std::move(function))] { return kept.call<bool>(); };
}

void without_lock(const std::function<void()>& act) {
  if (!PyGILState_Check()) return act();
  const py::gil_scoped_release released;
  act();
}

}  // namespace dear::python
