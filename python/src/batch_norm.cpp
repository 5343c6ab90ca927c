// Batch normalisation over ranks for Python, on which dear.SyncBatchNorm stands.

#include <memory>
#include <optional>
#include <string>

#include <torch/csrc/utils/pybind.h>

#include "dear/train/batch_norm/sync_batch_norm.h"
#include "python/src/parts.h"

namespace dear::python {

void bind_batch_norm(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<NormGroup, std::shared_ptr<NormGroup>>(module, "NormGroup",
                                                    "The ranks of layers of batch normalisation.")
      .def(py::init([](const Group& group) { return std::make_shared<NormGroup>(group, throw_as_python); }),
           py::arg("group"), Release())
      .def_property_readonly("size", &NormGroup::size);
  module.def(
      "sync_batch_norm",
      [](const at::Tensor& input, const std::optional<at::Tensor>& weight,
         const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
         const std::optional<at::Tensor>& running_var, double momentum, double eps, const NormGroup& group) {
        return sync_batch_norm(input,
                               {.weight = weight.value_or(at::Tensor()),
                                .bias = bias.value_or(at::Tensor()),
                                .running_mean = running_mean.value_or(at::Tensor()),
                                .running_var = running_var.value_or(at::Tensor())},
                               momentum, eps, group);
      },
      py::arg("input"), py::arg("weight"), py::arg("bias"), py::arg("running_mean"), py::arg("running_var"),
      py::arg("momentum"), py::arg("eps"), py::arg("group"), Release());
}

}  // namespace dear::python
