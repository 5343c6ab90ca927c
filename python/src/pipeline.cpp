// One model over machines that are far apart, for Python: what dear.pipeline() asks of its planner.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <pybind11/stl.h>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/plan.h"
#include "dear/methods/pipeline/planner.h"
#include "dear/platform/cluster/sites.h"
#include "dear/schedule/codec/top_k.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

using methods::pipeline::OperatorDag;
using methods::pipeline::StageCosts;

// The text of a file of a cluster, its path, or the name of a preset.
PairCluster cluster_of(const std::string& text) {
  return text.starts_with('{') ? parse_pair_cluster(text, "the cluster") : find_pair_cluster(text);
}

struct PipelineOptions {
  std::string method, schedule;
  int micro_batches = 0;
  int stages_of_device = 0;
  std::string rule;
  double ratio = 1;
};

std::string planned_pipeline(const std::string& operators, const std::string& cluster,
                             const PipelineOptions& options) {
  using namespace methods::pipeline;
  const OperatorDag dag = parse_operators(operators, "the model");
  const PairCluster devices = cluster_of(cluster);
  validate(devices);
  const StageCosts costs(dag, devices);
  return to_json(make_plan(costs, {.method = find_plan_method(options.method),
                                   .schedule = find_schedule_kind(options.schedule),
                                   .micro_batches = options.micro_batches,
                                   .stages_of_device = options.stages_of_device,
                                   .compression = {.rule = find_compression_rule(options.rule),
                                                   .ratio = options.ratio}}),
                 costs);
}

using BoundTask = std::tuple<std::string, int, int>;  // kind, stage, micro-batch

// What ranks run of a plan that is checked.
struct PlanToRun {
  std::vector<int> devices;                    // by stage
  std::vector<std::vector<BoundTask>> orders;  // by place
  std::vector<int> most_held;                  // by stage
  double estimated_seconds = 0;                // of an iteration, played
  std::vector<double> peak_bytes;              // by place
};

PlanToRun read_pipeline(const std::string& text, const std::string& source, const std::string& operators,
                        const std::string& cluster) {
  using namespace methods::pipeline;
  const OperatorDag dag = parse_operators(operators, "the model");
  const PairCluster devices = cluster_of(cluster);
  const StageCosts costs(dag, devices);
  const Plan plan = parse_plan(text, source, costs);
  PlanToRun run;
  for (const Stage& stage : plan.stages) run.devices.push_back(stage.device);
  for (const std::vector<Task>& order : orders(plan.shape())) {
    run.orders.emplace_back();
    for (const Task& task : order)
      run.orders.back().emplace_back(name_of(task.kind), task.stage, task.micro_batch);
  }
  run.most_held = most_held(plan.shape());
  run.estimated_seconds = play(times_of(plan, costs)).iteration_seconds;
  run.peak_bytes = peak_bytes(plan, costs);
  return run;
}

// Coordinates of `count` elements of largest magnitude, in a message: their indices, then their values, all
// of four bytes. `values` are contiguous fp32 on the CPU.
at::Tensor largest_in_message(const at::Tensor& values, std::int64_t count) {
  if (values.scalar_type() != at::kFloat || !values.is_cpu() || !values.is_contiguous() || count < 1 ||
      count > values.numel())
    throw ConfigError("the largest elements are taken of contiguous fp32 on the CPU, at least one of them");
  std::vector<codec::Coordinate> chosen(static_cast<std::size_t>(count));
  codec::Selection().largest({values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())},
                             chosen);
  at::Tensor message = at::empty({2 * count}, at::kInt);
  auto* words = message.data_ptr<std::int32_t>();
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    words[i] = static_cast<std::int32_t>(chosen[i].index);
    std::memcpy(&words[chosen.size() + i], &chosen[i].value, sizeof(float));
  }
  return message;
}

}  // namespace

void bind_pipeline(py::module_& module) {
  module.def(
      "pipeline_plan",
      [](const std::string& operators, const std::string& cluster, std::string method, std::string schedule,
         int micro_batches, int stages_of_device, std::string rule, double ratio) {
        return planned_pipeline(operators, cluster,
                                {std::move(method), std::move(schedule), micro_batches, stages_of_device,
                                 std::move(rule), ratio});
      },
      py::arg("operators"), py::arg("cluster"), py::kw_only(), py::arg("method"), py::arg("schedule"),
      py::arg("micro_batches"), py::arg("stages_of_device"), py::arg("rule"), py::arg("ratio"));
  py::class_<PlanToRun>(module, "PipelinePlan")
      .def_readonly("devices", &PlanToRun::devices)
      .def_readonly("orders", &PlanToRun::orders)
      .def_readonly("most_held", &PlanToRun::most_held)
      .def_readonly("estimated_seconds", &PlanToRun::estimated_seconds)
      .def_readonly("peak_bytes", &PlanToRun::peak_bytes);
  module.def(
      "pipeline_digest",
      [](const std::string& operators) {
        return methods::pipeline::parse_operators(operators, "the model").digest();
      },
      py::arg("operators"), "Ranks may run a plan together only if it is the same.");
  module.def("pipeline_read", &read_pipeline, py::arg("plan"), py::arg("source"), py::arg("operators"),
             py::arg("cluster"));
  module.def("pipeline_largest", &largest_in_message, py::arg("values"), py::arg("count"));
  module.def(
      "pipeline_cluster",
      [](const std::string& cluster) {
        const PairCluster found = cluster_of(cluster);
        validate(found);
        return std::pair(to_json(found), found.devices.size());
      },
      py::arg("cluster"), "The text of a cluster's file, and how many devices it has.");
}

}  // namespace dear::python
