// Training by rounds for Python: dear._C.Rounds, on which the argument `rounds` of dear.distribute() stands.

#include "dear/systems/rounds/rounds.h"

#include <map>
#include <memory>
#include <optional>
#include <pybind11/stl.h>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "python/src/parts.h"

namespace dear::python {
namespace {

using NamedOfRounds = std::vector<std::pair<std::string, at::Tensor>>;

// An object with step(), state() and set_state(), of bytes.
class PythonOuter : public OuterOptimizer {
 public:
  explicit PythonOuter(py::object object) : object_(std::move(object)) {}
  void step() override {
    call([](const py::object& object) { object.attr("step")(); });
  }
  [[nodiscard]] std::string state() const override {
    std::string bytes;
    call([&](const py::object& object) { bytes = object.attr("state")().cast<std::string>(); });
    return bytes;
  }
  void set_state(const std::string& state) override {
    call([&](const py::object& object) { object.attr("set_state")(py::bytes(state)); });
  }

 private:
  template <typename Use>
  void call(const Use& use) const {
    object_.under_lock([&](const py::object& object) { or_python_error([&] { use(object); }); });
  }

  Held object_;
};

MakeOuter make_outer_of(py::object make) {
  if (make.is_none()) return nullptr;
  return [make = Held(std::move(make))](const std::vector<torch::Tensor>& parameters) {
    return make.under_lock([&](const py::object& function) {
      std::unique_ptr<OuterOptimizer> outer;
      or_python_error([&] { outer = std::make_unique<PythonOuter>(function(parameters)); });
      return outer;
    });
  };
}

std::vector<Model::Named> of_rounds(const NamedOfRounds& tensors) {
  std::vector<Model::Named> all;
  for (const auto& [name, tensor] : tensors) all.push_back({name, tensor});
  return all;
}

std::shared_ptr<Rounds> make_rounds(const NamedOfRounds& parameters, const NamedOfRounds& buffers,
                                    const Group& group, std::int64_t every, std::int64_t fragments,
                                    std::int64_t delay, double mixing, int inside,
                                    const std::string& compression, py::object outer) {
  MakeOuter make_outer = make_outer_of(std::move(outer));
  const Model model{.parameters = of_rounds(parameters), .buffers = of_rounds(buffers)};
  const py::gil_scoped_release released;
  RoundOptions options{
      .every = every, .fragments = fragments, .delay = delay, .mixing = mixing, .inside = inside};
  if (!compression.empty()) options.compression = Compression::parse(compression);
  return share_without_lock(std::make_unique<Rounds>(model, group, std::move(options), make_outer));
}

py::dict report_of_rounds(const Rounds& rounds) {
  const RoundsReport report = rounds.report();
  py::dict result;
  result["steps"] = report.steps;
  result["exchanges"] = report.exchanges;
  result["bytes"] = report.bytes;
  result["communication_seconds"] = report.communication_seconds;
  result["exposed_seconds"] = report.exposed_seconds;
  result["memory_bytes"] = report.memory_bytes;
  result["fragments"] = report.fragments;
  return result;
}

}  // namespace

void bind_rounds(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<Rounds, std::shared_ptr<Rounds>>(module, "Rounds", "The engine behind dear.DiLoCo.")
      .def(py::init(&make_rounds), py::arg("parameters"), py::arg("buffers"), py::arg("group"), py::kw_only(),
           py::arg("every"), py::arg("fragments"), py::arg("delay"), py::arg("mixing"), py::arg("inside"),
           py::arg("compression"), py::arg("outer"))
      .def("inside",
           [](const Rounds& rounds) { return share_without_lock(std::make_unique<Group>(rounds.inside())); })
      .def("follow", &Rounds::follow, py::arg("training"), Release())
      .def("end", &Rounds::end, Release())
      .def("show_global", &Rounds::show_global, Release())
      .def("show_own", &Rounds::show_own, Release())
      .def("state", &Rounds::state, Release())
      .def("load_state", &Rounds::load_state, py::arg("state"), Release())
      .def("report", &report_of_rounds);
}

}  // namespace dear::python
