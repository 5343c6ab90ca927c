#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "dear/base/trace/trace.h"
#include "dear/methods/pipeline/planner.h"
#include "dear/methods/pipeline/stages.h"
#include "dear/methods/pipeline/timeline.h"

// One model over devices that are far apart, as `dear pipeline` plans and plays it.
namespace dear::cases {

// PipelineNames are the names and numbers that a user gives for a model and the devices that share it.
struct PipelineNames {
  std::string model;                    // of the zoo, or the path of a file of operators
  std::string cluster;                  // see find_pair_cluster()
  std::optional<std::uint64_t> seed{};  // of a cluster that is drawn
  std::int64_t batch = 0;               // of an iteration; 0: usual_batch()
  std::int64_t size = 0;                // of a sample; 0: the model's own
  std::string dtype{};                  // the model's own when empty
  int micro_batches = 8;
  int optimizer_states = 2;  // copies of parameters in memory, beside them and their gradients
};
// The model's own batch, or the next that can be cut into each of these numbers of micro-batches. ConfigError
// for no model of the zoo, and numbers that no batch can be cut into.
std::int64_t usual_batch(const std::string& model, const std::vector<int>& micro_batches);
// The models of the zoo whose operators are known.
std::vector<std::string> pipeline_models();

// A PipelineJob is a model on a cluster, which no plan changes. It cannot be copied, for its costs refer to
// its other members.
struct PipelineJob {
  // ConfigError for a name or file that there is not, numbers that cannot be, options of models by name
  // beside a file, and a seed beside a cluster that is not drawn.
  explicit PipelineJob(const PipelineNames& names);
  PipelineJob(const PipelineJob&) = delete;
  PipelineJob& operator=(const PipelineJob&) = delete;

  std::int64_t batch = 0;  // 0 where a file of operators does not tell
  int micro_batches = 1;
  methods::pipeline::OperatorDag dag;
  PairCluster cluster;
  std::vector<std::string> sites;  // by device, see site_names()
  methods::pipeline::StageCosts costs;

  [[nodiscard]] const std::string& device(int number) const;
  [[nodiscard]] std::int64_t parameter_bytes() const;
};
std::string describe(const PipelineJob& job);  // a line
std::string micro_batches_text(int number);    // "8 micro-batches"

// A name for the community of each device, by links: the beginning that its devices' names share where these
// differ from site to site, else a number.
std::vector<std::string> site_names(const PairCluster& cluster);

// PipelinePlanNames are the names that a user gives for how it is planned: every planner with every schedule
// and compression.
struct PipelinePlanNames {
  std::vector<std::string> planners{"op-fence"};
  std::vector<std::string> schedules{"1f1b"};
  std::vector<std::string> compressions{"none"};
  double ratio = 100;
  std::string devices = "all";             // or "fastest", of op-fence
  std::optional<int> stages_per_device{};  // of interleaved; 2 by default
};
// Planners outermost. ConfigError for a name that there is not, a ratio that cannot be, and numbers without
// effect.
std::vector<methods::pipeline::PlanOptions> find_plans(const PipelinePlanNames& names, int micro_batches);
std::string text_of(const methods::pipeline::LinkCompression& compression);  // "ada-top-k, 100"

// One plan, played.
struct PipelineCase {
  const PipelineJob* job = nullptr;
  std::string planner, compression;  // for readers
  methods::pipeline::Plan plan;
  methods::pipeline::PipelineTimes times;
  methods::pipeline::Played played;
  std::vector<double> peak_bytes;  // by place

  [[nodiscard]] double seconds() const { return played.iteration_seconds; }
  [[nodiscard]] double bubble() const;      // the part of all devices' time in which they compute nothing
  [[nodiscard]] double sent_bytes() const;  // over all links, of an iteration
  [[nodiscard]] const std::string& device_of(int place) const;
};
PipelineCase play_plan(const PipelineJob& job, methods::pipeline::Plan plan, std::string planner,
                       std::string compression);
// By case, over the first with its model and cluster.
std::vector<double> speed_ups(const std::vector<PipelineCase>& cases);
PipelineCase play_plan(const PipelineJob& job, const methods::pipeline::PlanOptions& options);

// A plan that cannot be made, and why.
struct LeftOutPlan {
  std::string what, reason;
};
struct PlayedPlans {
  std::vector<PipelineCase> cases;
  std::vector<LeftOutPlan> left_out;
};
// The jobs outlive the cases. ConfigError where none can be made: the first reason.
PlayedPlans play_plans(const std::deque<PipelineJob>& jobs, const PipelinePlanNames& names);

// Carried says how much a cut between neighbour stages carries for one micro-batch, one way.
struct Carried {
  std::int64_t dense_bytes = 0, bytes = 0;
  double ratio = 1;  // of elements there are to those that travel
  methods::pipeline::Transfer transfer{};
};
Carried activations_over(const PipelineCase& one, std::size_t cut);
Carried gradients_over(const PipelineCase& one, std::size_t cut);

nlohmann::ordered_json json_of(const PipelineCase& one);
// A list of {model, cluster, planner, ...}: see docs/formats.md.
std::string to_json(const PlayedPlans& plans);
// SVG: a panel for each job, a bar for each plan: what the device does that computes the longest.
std::string plot(const std::vector<PipelineCase>& cases, const std::string& title);
// Rank r is place r of the pipeline. Links are named by the device at their end.
Trace trace_of(const PipelineCase& one);

}  // namespace dear::cases
