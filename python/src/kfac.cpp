// K-FAC for Python: dear._C.Kfac, on which dear.KFAC stands.

#include "dear/systems/kfac/kfac.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "python/src/parts.h"

namespace dear::python {
namespace {

// Name, weight, bias, groups, and whether it is in training mode.
using BoundLayer = std::tuple<std::string, at::Tensor, std::optional<at::Tensor>, std::int64_t, py::object>;

// Keeps the training for its own time.
class KfacOfTraining {
 public:
  KfacOfTraining(std::vector<KfacLayer> layers, std::shared_ptr<DataParallel> training, KfacOptions options)
      : training_(std::move(training)), kfac_(std::move(layers), *training_, std::move(options)) {}
  Kfac& kfac() { return kfac_; }

 private:
  std::shared_ptr<DataParallel> training_;
  Kfac kfac_;
};

std::vector<KfacLayer> layers_of(const std::vector<BoundLayer>& bound) {
  std::vector<KfacLayer> layers;
  for (const auto& [name, weight, bias, groups, in_training] : bound)
    layers.push_back({.name = name,
                      .weight = weight,
                      .bias = bias.value_or(at::Tensor()),
                      .groups = groups,
                      .in_training = predicate_of(in_training)});
  return layers;
}

std::shared_ptr<KfacOfTraining> make(const std::vector<BoundLayer>& bound,
                                     std::shared_ptr<DataParallel> training, const std::string& strategy,
                                     const std::string& fusion, double damping, bool pi_correction,
                                     double ema, std::optional<double> kl_clip, std::int64_t factor_every,
                                     std::int64_t inverse_every, std::vector<std::string> exclude,
                                     std::int64_t largest_factor, std::int64_t replan_after) {
  std::vector<KfacLayer> layers = layers_of(bound);
  const py::gil_scoped_release released;
  auto made = std::make_unique<KfacOfTraining>(std::move(layers), std::move(training),
                                               KfacOptions{.strategy = strategy,
                                                           .fusion = fusion,
                                                           .damping = damping,
                                                           .pi_correction = pi_correction,
                                                           .ema = ema,
                                                           .kl_clip = kl_clip,
                                                           .factor_every = factor_every,
                                                           .inverse_every = inverse_every,
                                                           .exclude = std::move(exclude),
                                                           .largest_factor = largest_factor,
                                                           .replan_after = replan_after});
  return share_without_lock(std::move(made));
}

py::dict report_of(KfacOfTraining& owner) {
  const KfacReport report = owner.kfac().report();
  py::dict result;
  result["steps"] = report.steps;
  result["layers"] = report.layers;
  result["left_out"] = report.left_out;
  result["late_uses"] = report.late_uses;
  result["nonfinite_factors"] = report.nonfinite_factors;
  result["raised_dampings"] = report.raised_dampings;
  result["given_up_inverses"] = report.given_up_inverses;
  result["plan"] = report.plan;
  result["waited_seconds"] = report.waited_seconds;
  return result;
}

}  // namespace

void bind_kfac(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<KfacOfTraining, std::shared_ptr<KfacOfTraining>>(module, "Kfac", "The engine behind dear.KFAC.")
      .def(py::init(&make), py::arg("layers"), py::arg("training"), py::kw_only(), py::arg("strategy"),
           py::arg("fusion"), py::arg("damping"), py::arg("pi_correction"), py::arg("ema"),
           py::arg("kl_clip"), py::arg("factor_every"), py::arg("inverse_every"), py::arg("exclude"),
           py::arg("largest_factor"), py::arg("replan_after"))
      .def(
          "step",
          [](KfacOfTraining& owner, std::optional<double> learning_rate, double loss_scale) {
            owner.kfac().step({.learning_rate = learning_rate, .loss_scale = loss_scale});
          },
          py::arg("learning_rate"), py::arg("loss_scale"), Release())
      .def(
          "state", [](KfacOfTraining& owner) { return owner.kfac().state(); }, Release())
      .def(
          "load_state",
          [](KfacOfTraining& owner, const std::map<std::string, at::Tensor>& state) {
            owner.kfac().load_state(state);
          },
          py::arg("state"), Release())
      .def("report", &report_of);
}

}  // namespace dear::python
