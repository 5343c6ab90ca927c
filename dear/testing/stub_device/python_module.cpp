#include <memory>
#include <pybind11/stl.h>
#include <string>
#include <utility>

#include <torch/csrc/utils/pybind.h>

#include "dear/testing/stub_device/process_group.h"
#include "dear/testing/stub_device/stub_device.h"

// The stub device for tests in Python, whose ranks are processes.
namespace dear::stub_device {
PYBIND11_MODULE(dear_stub_device, module) {
  namespace py = pybind11;
  py::module_::import("torch.distributed");  // has the base class
  install();
  module.attr("DEVICES") = kDevices;
  module.def("host_waits", &host_waits);
  module.def("settle", [] {
    const py::gil_scoped_release release;
    settle();
  });
  module.def("finish", [] {
    const py::gil_scoped_release release;
    finish();
  });
  module.def(
      "set_delays",
      [](std::uint64_t seed, double largest_seconds) {
        set_delays({.seed = seed,
                    .largest = std::chrono::microseconds(static_cast<std::int64_t>(largest_seconds * 1e6))});
      },
      py::arg("seed"), py::arg("largest_seconds"));
  py::class_<StubBackend, ::c10d::Backend, c10::intrusive_ptr<StubBackend>>(module, "StubBackend")
      .def(py::init([](const c10::intrusive_ptr<::c10d::Backend>& over) {
             return c10::make_intrusive<StubBackend>(std::make_shared<OverBackend>(over), over->getRank());
           }),
           py::arg("over"));
}

}  // namespace dear::stub_device
