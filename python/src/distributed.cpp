// The backend of torch.distributed for Python: dear._C.DistributedBackend, which
// init_process_group("cpu:dear") makes.

#include <chrono>
#include <memory>
#include <utility>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include "dear/comm/process_group/c10d.h"
#include "dear/comm/torch_backend/backend.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

// The last handle may be one of Python: what is under way ends without the interpreter's lock, which others
// may need to end it.
class BackendOfPython final : public torch_backend::Backend {
 public:
  using torch_backend::Backend::Backend;
  ~BackendOfPython() override {
    without_lock([this] { end(); });
  }
};

}  // namespace

void bind_distributed(py::module_& module) {
  py::module_::import("torch.distributed");  // has the base class
  using Backend = BackendOfPython;
  using C10dBackend = c10::intrusive_ptr<::c10d::Backend>;
  py::class_<Backend, ::c10d::Backend, c10::intrusive_ptr<Backend>>(
      module, "DistributedBackend", "A group as a backend of torch.distributed, for memory of the host.")
      .def(py::init([](const Group& group, const C10dBackend& others) {
             const py::gil_scoped_release released;
             return c10::make_intrusive<Backend>(group, others);
           }),
           py::arg("group"), py::arg("others"))
      .def_property_readonly("group",
                             [](const Backend& backend) { return std::make_shared<Group>(backend.group()); })
      .def_property_readonly("carried", &Backend::carried)
      .def_property_readonly("handed_over", &Backend::handed_over);
  module.def(
      "group_on_backend",
      [](const C10dBackend& backend, double timeout) {
        const py::gil_scoped_release released;
        return std::make_shared<Group>(
            group_on(backend, {.timeout = std::chrono::duration<double>(timeout)}));
      },
      py::arg("backend"), py::arg("timeout"),
      "A group over one backend of torch.distributed, which carries nothing else while the group lives.");
}

}  // namespace dear::python
