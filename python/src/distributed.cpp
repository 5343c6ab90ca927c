// The backend of torch.distributed for Python: dear._C.DistributedBackend, which
// init_process_group("cpu:dear") makes.

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/awaited/channels/awaited.h"
#include "dear/comm/process_group/c10d.h"
#include "dear/comm/process_group/channels/point_to_point.h"
#include "dear/comm/shaped/pair_links.h"
#include "dear/train/torch_backend/backend.h"
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

PairCluster network_of(const std::string& text) { return parse_pair_cluster(text, "the modelled network"); }

}  // namespace

void bind_distributed(py::module_& module) {
  py::module_::import("torch.distributed");  // has the base class
  using Backend = BackendOfPython;
  using C10dBackend = c10::intrusive_ptr<::c10d::Backend>;
  py::class_<Backend, ::c10d::Backend, c10::intrusive_ptr<Backend>>(
      module, "DistributedBackend", "A group as a backend of torch.distributed, for memory of the host.")
      .def(py::init([](const Group& group, const C10dBackend& others, const std::string& network) {
             const py::gil_scoped_release released;
             std::unique_ptr<torch_backend::ModelledMessages> messages;
             if (!network.empty())
               messages = std::make_unique<torch_backend::ModelledMessages>(others, network_of(network));
             return c10::make_intrusive<Backend>(group, others, std::move(messages));
           }),
           py::arg("group"), py::arg("others"), py::arg("network"))
      .def_property_readonly("network",
                             [](const Backend& backend) {
                               const auto* messages = backend.messages();
                               return messages == nullptr ? "" : to_json(messages->cluster());
                             })
      .def_property_readonly("group",
                             [](const Backend& backend) { return std::make_shared<Group>(backend.group()); })
      .def_property_readonly("carried", &Backend::carried)
      .def_property_readonly("handed_over", &Backend::handed_over);
  module.def(
      "group_on_backend",
      [](const C10dBackend& backend, double timeout, const std::string& network) {
        const py::gil_scoped_release released;
        const std::chrono::duration<double> limit(timeout);
        if (network.empty()) return std::make_shared<Group>(group_on(backend, {.timeout = limit}));
        auto messages = channels::make_awaited(channels::make_point_to_point(backend));
        return std::make_shared<Group>(backends::make_shaped(std::move(messages), network_of(network)),
                                       Group::Options{.timeout = limit});
      },
      py::arg("backend"), py::arg("timeout"), py::arg("network"),
      "A group over one backend of torch.distributed, which carries nothing else while the group lives. "
      "network: the text of a cluster with a link for each pair, whose times it takes; or nothing.");
}

}  // namespace dear::python
