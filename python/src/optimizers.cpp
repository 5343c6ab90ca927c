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

// Destroyed on any thread.
py::object release_under_lock(py::object object) {
  const py::gil_scoped_acquire lock;
  const py::object last = std::move(object);
  return {};
}

// dear._optimizer.Twin as the engine calls it, mostly from the thread of the update lane.
class Twin : public FlatOptimizer {
 public:
  explicit Twin(py::object twin) : twin_(std::move(twin)) {}
  ~Twin() override { twin_ = release_under_lock(std::move(twin_)); }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  void capture_options() override {
    const py::gil_scoped_acquire lock;
    twin_.attr("capture_options")();
  }
  [[nodiscard]] bool has_current_options() const override {
    const py::gil_scoped_acquire lock;
    return twin_.attr("has_current_options")().cast<bool>();
  }
  [[nodiscard]] std::vector<torch::Tensor> option_tensors() const override {
    const py::gil_scoped_acquire lock;
    return twin_.attr("option_tensors")().cast<std::vector<torch::Tensor>>();
  }
  void step(const std::vector<std::vector<torch::Tensor>>& by_group) override {
    const py::gil_scoped_acquire lock;
    twin_.attr("step")(by_group);
  }
  [[nodiscard]] bool skips_on_device() const override {
    const py::gil_scoped_acquire lock;
    return twin_.attr("skips_on_device")().cast<bool>();
  }
  void step_unless(const std::vector<std::vector<torch::Tensor>>& by_group,
                   const torch::Tensor& found) override {
    const py::gil_scoped_acquire lock;
    twin_.attr("step_unless")(by_group, found);
  }
  std::vector<ExactSum> begin_step(const std::vector<std::vector<torch::Tensor>>& by_group) override {
    std::vector<torch::Tensor> tensors;
    {
      const py::gil_scoped_acquire lock;
      tensors = twin_.attr("begin_step")(by_group).cast<std::vector<torch::Tensor>>();
    }
    std::vector<ExactSum> sums;
    for (const torch::Tensor& tensor : tensors) sums.push_back(sum_of_squares(tensor));
    return sums;
  }
  void end_step(const std::vector<double>& norms) override {
    const py::gil_scoped_acquire lock;
    twin_.attr("end_step")(norms);
  }
  [[nodiscard]] std::optional<OptimizerState> state(std::size_t group,
                                                    const torch::Tensor& tensor) const override {
    const py::gil_scoped_acquire lock;
    return to_state(twin_.attr("state")(group, tensor));
  }
  void set_state(std::size_t group, const torch::Tensor& tensor,
                 const std::optional<OptimizerState>& state) override {
    const py::gil_scoped_acquire lock;
    twin_.attr("set_state")(group, tensor, from_state(state));
  }

 private:
  py::object twin_;
};

// In the order of Ownership and Updates.
constexpr std::array<const char*, 3> kOwnerships{"cut", "auto", "whole"};
constexpr std::array<const char*, 3> kUpdates{"auto", "sharded", "program"};

// dear._optimizer.Source as the engine calls it.
class Source : public Optimizer {
 public:
  explicit Source(py::object source) : source_(std::move(source)) {}
  ~Source() override { source_ = release_under_lock(std::move(source_)); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  [[nodiscard]] std::string name() const override {
    const py::gil_scoped_acquire lock;
    return source_.attr("name")().cast<std::string>();
  }
  std::optional<std::string> choose_updates(Updates updates, Ownership ownership) override {
    const py::gil_scoped_acquire lock;
    return source_
        .attr("choose_updates")(kUpdates.at(static_cast<std::size_t>(updates)),
                                kOwnerships.at(static_cast<std::size_t>(ownership)))
        .cast<std::optional<std::string>>();
  }
  [[nodiscard]] std::vector<std::vector<torch::Tensor>> parameter_groups() const override {
    const py::gil_scoped_acquire lock;
    return source_.attr("parameter_groups")().cast<std::vector<std::vector<torch::Tensor>>>();
  }
  // Without a call into Python: a rank that trains alone waits for it.
  [[nodiscard]] bool holds(const std::vector<std::vector<const c10::TensorImpl*>>& by_group) const override {
    const py::gil_scoped_acquire lock;
    const py::list groups = source_.attr("original").attr("param_groups");
    const auto same = [](const py::handle& tensor, const c10::TensorImpl* other) {
      return THPVariable_Check(tensor.ptr()) &&
             THPVariable_Unpack(tensor.ptr()).unsafeGetTensorImpl() == other;
    };
    const auto alike = [&](const py::handle& group, const auto& others) {
      const py::list tensors = group["params"];
      return std::equal(tensors.begin(), tensors.end(), others.begin(), others.end(), same);
    };
    return std::equal(groups.begin(), groups.end(), by_group.begin(), by_group.end(), alike);
  }
  [[nodiscard]] FlatVectors vectors(std::size_t group) const override {
    const py::gil_scoped_acquire lock;
    const auto [longest, joined, whole] =
        source_.attr("vectors")(group).cast<std::tuple<std::int64_t, bool, bool>>();
    return {.longest = longest, .joined = joined, .whole = whole};
  }
  [[nodiscard]] std::size_t norms() const override {
    const py::gil_scoped_acquire lock;
    return source_.attr("norms")().cast<std::size_t>();
  }
  [[nodiscard]] std::string options() const override {
    const py::gil_scoped_acquire lock;
    return source_.attr("options")().cast<py::bytes>();
  }
  void set_options(const std::string& options) override {
    const py::gil_scoped_acquire lock;
    source_.attr("set_options")(py::bytes(options));
  }
  void step() override {
    const py::gil_scoped_acquire lock;
    try {
      source_.attr("step")();
    } catch (const py::error_already_set& error) {
      throw PythonError(error);
    }
  }
  [[nodiscard]] std::unique_ptr<FlatOptimizer> make_flat() const override {
    const py::gil_scoped_acquire lock;
    return std::make_unique<Twin>(source_.attr("make_flat")());
  }
  [[nodiscard]] std::optional<OptimizerState> state(const torch::Tensor& tensor) const override {
    const py::gil_scoped_acquire lock;
    return to_state(source_.attr("state")(tensor));
  }
  void set_state(const torch::Tensor& tensor, const std::optional<OptimizerState>& state) override {
    const py::gil_scoped_acquire lock;
    source_.attr("set_state")(tensor, from_state(state));
  }
  void state_leaves() override {
    const py::gil_scoped_acquire lock;
    source_.attr("state_leaves")();
  }
  void state_returns() noexcept override {}
  [[nodiscard]] bool state_is_away() const override {
    const py::gil_scoped_acquire lock;
    return source_.attr("state_is_away")().cast<bool>();
  }

 private:
  py::object source_;
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

// To be let go on any thread.
std::shared_ptr<py::object> keep(py::object function) {
  return {new py::object(std::move(function)), [](py::object* last) {
            *last = release_under_lock(std::move(*last));
            delete last;
          }};
}

UpdateCost update_cost_of(py::object function) {
  if (function.is_none()) return {};
  const std::shared_ptr<py::object> kept = keep(std::move(function));
  return [kept](const std::string& name, const torch::Tensor& parameter) {
    const py::gil_scoped_acquire lock;
    return (*kept)(name, parameter).cast<double>();
  };
}

std::function<std::vector<Model::Named>()> buffers_of(py::object function) {
  const std::shared_ptr<py::object> kept = keep(std::move(function));
  return [kept] {
    const py::gil_scoped_acquire lock;
    std::vector<Model::Named> buffers;
    for (const auto& [name, tensor] : (*kept)().cast<std::vector<std::pair<std::string, at::Tensor>>>())
      buffers.push_back({name, tensor});
    return buffers;
  };
}

std::function<bool()> predicate_of(py::object function) {
  if (function.is_none()) return {};
  const std::shared_ptr<py::object> kept = keep(std::move(function));
  return [kept] {
    const py::gil_scoped_acquire lock;
    return (*kept)().cast<bool>();
  };
}

void without_lock(const std::function<void()>& act) {
  if (!PyGILState_Check()) return act();
  const py::gil_scoped_release released;
  act();
}

}  // namespace dear::python
