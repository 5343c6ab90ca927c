#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <pybind11/stl.h>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/trace/chrome.h"
#include "dear/base/trace/timeline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/presets.h"
#include "dear/schedule/policies/schedule_file.h"
#include "dear/tools/cases/cases.h"
#include "dear/tools/cases/kfac_plan.h"
#include "dear/tools/cases/planned.h"
#include "dear/tools/cases/scenario.h"
#include "dear/workload/layers/workload_file.h"
#include "dear/workload/zoo/models.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

// Cases point to their scenarios, so it stays where it is made.
class Simulation {
 public:
  Simulation(const cases::ScenarioOptions& scenarios, const cases::CaseNames& names,
             const sim::EvaluateOptions& evaluate)
      : scenarios_(cases::scenarios(scenarios)),
        cases_(cases::simulate(scenarios_, cases::find_options(names, evaluate))) {}
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  [[nodiscard]] std::string to_json() const { return cases::to_json(cases_); }
  [[nodiscard]] std::string plot() const { return cases::plot(cases_, "Iteration times, simulated"); }
  [[nodiscard]] std::string timeline(std::size_t index, std::int64_t first, std::int64_t count) const {
    return dear::timeline(cases::trace_of(cases_.at(index)), {.first_iteration = first, .iterations = count});
  }
  [[nodiscard]] std::string trace(std::size_t index) const {
    return to_chrome_json(cases::trace_of(cases_.at(index)));
  }

 private:
  std::vector<cases::Scenario> scenarios_;
  std::vector<cases::Case> cases_;
};

class Plan {
 public:
  Plan(const cases::ScenarioOptions& scenarios, const cases::PlanNames& names)
      : scenario_(cases::scenarios(scenarios).at(0)),
        planned_(
            cases::plan(scenario_, cases::find_options(names),
                        cases::Compressions(names.compression).in(scenario_, scenario_.cluster.ranks()))) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  [[nodiscard]] std::string to_json() const { return cases::to_json({planned_}); }
  [[nodiscard]] std::string schedule() const { return dear::to_json(cases::schedule_of(planned_)); }
  [[nodiscard]] std::string plot() const { return cases::plot({planned_}); }

 private:
  cases::Scenario scenario_;
  cases::PlannedScenario planned_;
};

// A descriptor of the file at `path` that its caller closes.
int duplicate_of(const os::FileDescriptor& file, const std::string& path) {
  const int descriptor = ::fcntl(file.get(), F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) throw ConfigError(with_errno("cannot open '" + path + "'", errno));
  return descriptor;
}

using Released = py::call_guard<py::gil_scoped_release>;

std::unique_ptr<Simulation> simulate(std::vector<cases::ModelName> models, std::vector<std::string> clusters,
                                     std::vector<int> ranks, const cases::ModelOptions& model,
                                     const cases::CaseNames& names, const sim::EvaluateOptions& evaluate) {
  return std::make_unique<Simulation>(cases::ScenarioOptions{.models = std::move(models),
                                                             .clusters = std::move(clusters),
                                                             .ranks = std::move(ranks),
                                                             .jobs = names.jobs,
                                                             .model = model},
                                      names, evaluate);
}

std::unique_ptr<Plan> plan(cases::ModelName model, std::string cluster, std::optional<int> ranks,
                           const cases::ModelOptions& options, const cases::PlanNames& names) {
  cases::ScenarioOptions scenarios{
      .models = {std::move(model)}, .clusters = {std::move(cluster)}, .model = options};
  if (ranks) scenarios.ranks.push_back(*ranks);
  return std::make_unique<Plan>(scenarios, names);
}

// Returns the text that `dear plan --optimizer kfac --json` writes, without its origin.
std::string plan_kfac(cases::ModelName model, std::string cluster, std::optional<int> ranks,
                      const cases::ModelOptions& options, const std::vector<std::string>& policies,
                      const std::string& algorithm) {
  cases::ScenarioOptions scenarios{
      .models = {std::move(model)}, .clusters = {std::move(cluster)}, .model = options};
  if (ranks) scenarios.ranks.push_back(*ranks);
  cases::KfacPlanOptions chosen;
  chosen.times.algorithm = algorithm;
  for (const std::string& name : policies) chosen.strategies.push_back(methods::kfac::find_strategy(name));
  const cases::Scenario scenario = cases::scenarios(scenarios).at(0);
  return cases::to_json({cases::plan_kfac(scenario, chosen)});
}

void take_schedule(cases::CaseNames& names, const std::string& path) {
  ScheduleFile file = read_schedule_file(path);
  names.policies = {std::move(file.policy)};
  names.buckets = std::move(file.buckets);
}

void bind_options(py::module_& module) {
  py::class_<cases::ModelOptions>(module, "ModelOptions")
      .def(py::init([](std::string device, std::int64_t batch, std::int64_t size, std::string dtype,
                       int optimizer_states, bool checkpoint_activations,
                       std::optional<double> scale_compute) {
             return cases::ModelOptions{.device = std::move(device),
                                        .batch = batch,
                                        .sample_size = size,
                                        .dtype = std::move(dtype),
                                        .optimizer_states = optimizer_states,
                                        .checkpoint_activations = checkpoint_activations,
                                        .scale_compute = scale_compute};
           }),
           py::kw_only(), py::arg("device"), py::arg("batch"), py::arg("size"), py::arg("dtype"),
           py::arg("optimizer_states"), py::arg("checkpoint_activations") = false,
           py::arg("scale_compute") = std::nullopt);
  py::class_<cases::CompressionNames>(module, "CompressionNames")
      .def(py::init([](std::vector<std::string> compressions, std::string codec, double union_density) {
             return cases::CompressionNames{.compressions = std::move(compressions),
                                            .codec = std::move(codec),
                                            .union_density = union_density};
           }),
           py::kw_only(), py::arg("compressions"), py::arg("codec"), py::arg("union_density"));
  py::class_<cases::CaseNames>(module, "CaseNames")
      .def(py::init([](std::vector<std::string> policies, std::string fusion, std::string algorithm,
                       std::string detail, int jobs, std::string placement,
                       cases::CompressionNames compression) {
             return cases::CaseNames{.policies = std::move(policies),
                                     .fusion = std::move(fusion),
                                     .algorithm = std::move(algorithm),
                                     .detail = std::move(detail),
                                     .jobs = jobs,
                                     .placement = std::move(placement),
                                     .compression = std::move(compression)};
           }),
           py::kw_only(), py::arg("policies"), py::arg("fusion"), py::arg("algorithm"), py::arg("detail"),
           py::arg("jobs"), py::arg("placement"), py::arg("compression"))
      .def("take_schedule", &take_schedule, py::arg("path"),
           "Policy and buckets of a schedule file, instead of `policies` and `fusion`.")
      .def_property_readonly("policies", [](const cases::CaseNames& self) { return self.policies; });
  py::class_<sim::EvaluateOptions>(module, "EvaluateOptions")
      .def(py::init([](std::int64_t iterations, double jitter, int repetitions, std::uint64_t seed,
                       int optimizer_states, int micro_batches) {
             return sim::EvaluateOptions{.iterations = iterations,
                                         .jitter = jitter,
                                         .repetitions = repetitions,
                                         .seed = seed,
                                         .optimizer_states = optimizer_states,
                                         .micro_batches = micro_batches};
           }),
           py::kw_only(), py::arg("iterations"), py::arg("jitter"), py::arg("repetitions"), py::arg("seed"),
           py::arg("optimizer_states"), py::arg("micro_batches"));
  py::class_<cases::PlanNames>(module, "PlanNames")
      .def(py::init([](std::vector<std::string> policies, std::string algorithm, int optimizer_states,
                       int micro_batches, cases::CompressionNames compression) {
             return cases::PlanNames{.policies = std::move(policies),
                                     .algorithm = std::move(algorithm),
                                     .optimizer_states = optimizer_states,
                                     .micro_batches = micro_batches,
                                     .compression = std::move(compression)};
           }),
           py::kw_only(), py::arg("policies"), py::arg("algorithm"), py::arg("optimizer_states"),
           py::arg("micro_batches"), py::arg("compression"));
}

}  // namespace

void bind_planning(py::module_& module) {
  py::class_<Workload>(module, "Workload", "A job as the simulator sees it; dear.Workload is what users get.")
      .def_static(
          "from_json",
          [](const std::string& text, const std::string& source) { return parse_workload(text, source); },
          py::arg("text"), py::arg("source"), Released(),
          "Of the text of a workload file (docs/formats.md). ConfigError names `source` and the field.")
      .def_static("load", &read_workload, py::arg("path"), Released(),
                  "Reads a workload file. ConfigError names the file, and the field that is wrong.")
      .def(
          "to_json", [](const Workload& self) { return to_json(self); }, Released())
      .def_property_readonly("bytes", &Workload::bytes);
  bind_options(module);
  py::class_<Simulation>(module, "Simulation", "What simulate() returns.")
      .def("to_json", &Simulation::to_json, Released(),
           "What `dear simulate --json` writes, without its origin.")
      .def("plot", &Simulation::plot, Released(), "SVG, as `dear simulate --plot` draws it.")
      .def("timeline", &Simulation::timeline, py::arg("case"), py::arg("first_iteration"),
           py::arg("iterations"), Released(), "SVG of the lanes of rank 0 in one case.")
      .def("trace", &Simulation::trace, py::arg("case"), Released(), "What `dear simulate --trace` writes.");
  py::class_<Plan>(module, "Plan", "What plan() returns.")
      .def("to_json", &Plan::to_json, Released(), "What `dear plan --json` writes, without its origin.")
      .def("plot", &Plan::plot, Released(), "SVG, as `dear plan --plot` draws it.")
      .def("schedule", &Plan::schedule, Released(), "What `dear plan --schedule` writes.");
  module.def("simulate", &simulate, py::kw_only(), py::arg("models"), py::arg("clusters"), py::arg("ranks"),
             py::arg("model_options"), py::arg("names"), py::arg("evaluate"), Released());
  module.def("plan", &plan, py::kw_only(), py::arg("model"), py::arg("cluster"), py::arg("ranks"),
             py::arg("model_options"), py::arg("names"), Released());
  module.def("plan_kfac", &plan_kfac, py::kw_only(), py::arg("model"), py::arg("cluster"), py::arg("ranks"),
             py::arg("model_options"), py::arg("policies"), py::arg("algorithm"), Released());
  module.def("find_workload", &cases::find_workload, py::arg("model"), py::arg("options"), Released(),
             "The workload of a model by name, or of a workload file.");
  module.def("write_file", &os::write_file_atomically, py::arg("path"), py::arg("text"), Released(),
             "Writes the file whole or not at all. ConfigError that names the file when that fails.");
  module.def(
      "exchange_names", &os::exchange_names, py::arg("one"), py::arg("other"), Released(),
      "Gives two files or folders of one folder each other's name, at once; False where the file system "
      "cannot.");
  module.def(
      "open_file", [](const std::string& path) { return duplicate_of(os::open_file(path).descriptor, path); },
      py::arg("path"), Released(),
      "The descriptor of a regular file, to read and to close. ConfigError for anything else, such as a pipe "
      "or a "
      "device.");
  module.def(
      "write_picture", &charts::write_picture, py::arg("path"), py::arg("svg"), Released(),
      "Writes the picture whole or not at all, as SVG, PDF or PNG by the path's ending. ConfigError for "
      "another ending and where there is no rsvg-convert.");
  module.def("format_seconds", &format_seconds, py::arg("seconds"), "\"71.1 ms\", as the command prints it.");
  module.def("format_bytes", &format_bytes, py::arg("bytes"), "\"97.5 MiB\", as the command prints it.");
  module.def("models", [] {
    std::vector<std::string> names;
    for (const zoo::Model& model : zoo::models()) names.emplace_back(model.name);
    return names;
  });
  module.def("clusters", [] {
    std::vector<std::string> names;
    for (const ClusterPreset& preset : clusters()) names.push_back(preset.cluster.name);
    return names;
  });
  module.def("policies", [] {
    std::vector<std::string> names;
    for (const Policy& policy : policies()) names.emplace_back(policy.name);
    return names;
  });
}

}  // namespace dear::python
