// The package's side of training on devices with streams: dear._C.StreamCollectives.

#include <memory>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include "dear/train/streams/stream_collectives.h"
#include "python/src/parts.h"

namespace dear::python {

void bind_streams(py::module_& module, BoundTraining& training) {
  py::class_<StreamCollectives, std::shared_ptr<StreamCollectives>>(
      module, "StreamCollectives", "What carries memory of a device between ranks, on streams of it.")
      .def_property_readonly("description", &StreamCollectives::description)
      .def("__repr__", [](const StreamCollectives& self) {
        return "<dear._C.StreamCollectives: " + self.description() + ">";
      });
  module.def(
      "stream_collectives",
      [](::c10d::ProcessGroup& process_group, const std::string& device_type) {
        return stream_collectives(c10::intrusive_ptr<::c10d::ProcessGroup>::reclaim_copy(&process_group),
                                  c10::Device(device_type).type());
      },
      py::arg("process_group"), py::arg("device_type"),
      "The collectives of a process group of torch.distributed on tensors of this type of device.");
  training.def(
      "clip_gradients",
      [](DataParallel& parallel, double max_norm, double norm_type) {
        return parallel.clip_gradients(max_norm, {.type = norm_type});
      },
      py::arg("max_norm"), py::arg("norm_type"), py::call_guard<py::gil_scoped_release>());
  training.def(
      "unscale_gradients_by",
      [](DataParallel& parallel, const std::optional<at::Tensor>& inverse_scale) {
        return parallel.unscale_gradients_by(inverse_scale.value_or(at::Tensor()));
      },
      py::arg("inverse_scale"), py::call_guard<py::gil_scoped_release>());
  training.def(
      "step_unless",
      [](DataParallel& parallel, const at::Tensor& nonfinite,
         const std::optional<at::Tensor>& inverse_scale) {
        parallel.step_unless(nonfinite, inverse_scale.value_or(at::Tensor()));
      },
      py::arg("nonfinite"), py::arg("inverse_scale"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace dear::python
