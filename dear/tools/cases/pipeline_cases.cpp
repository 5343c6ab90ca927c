#include "dear/tools/cases/pipeline_cases.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/charts/bar_chart.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/base/vocabulary/units.h"
#include "dear/methods/pipeline/communities.h"
#include "dear/methods/pipeline/zoo_operators.h"
#include "dear/platform/cluster/cluster_file.h"
#include "dear/platform/cluster/sites.h"
#include "dear/workload/zoo/models.h"

namespace dear::cases {
namespace {

namespace pipeline = methods::pipeline;

constexpr std::int64_t kMostSamples = 1 << 20, kMostSize = 1 << 16;
constexpr std::string_view kDrawn = "fusionllm-48";

void require_number(std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw ConfigError(
        fmt::format("{} of {} cannot be: give a number from {} to {}", what, value, least, most));
}

std::int64_t batch_of(const PipelineNames& names) {
  require_number("a batch", names.batch, 0, kMostSamples);
  require_number("a size", names.size, 0, kMostSize);
  require_number("a number of micro-batches", names.micro_batches, 1, kMostSamples);
  require_number("a number of optimiser's states", names.optimizer_states, 0, 100);
  if (names_file(names.model)) return 0;
  return names.batch != 0 ? names.batch : usual_batch(names.model, {names.micro_batches});
}

pipeline::OperatorDag dag_of(const PipelineNames& names, std::int64_t batch) {
  if (names_file(names.model)) {
    if (names.batch != 0 || names.size != 0 || !names.dtype.empty())
      throw ConfigError(fmt::format(
          "{} has operators for one micro-batch: batch, size and dtype are for models by name", names.model));
    return pipeline::read_operators(names.model);
  }
  std::optional<DType> dtype;
  if (!names.dtype.empty()) dtype = parse_dtype(names.dtype);
  if (dtype && pipeline::is_integer(*dtype))
    throw ConfigError(fmt::format("no model trains in {}: choose fp32, fp16 or bf16", names.dtype));
  const zoo::Model& model = zoo::find_model(names.model);
  return pipeline::operators_of(
      model, {.batch = batch, .micro_batches = names.micro_batches, .size = names.size, .dtype = dtype});
}

PairCluster cluster_of(const PipelineNames& names) {
  if (!names.seed) return find_pair_cluster(names.cluster);
  if (names.cluster != kDrawn)
    throw ConfigError(fmt::format("a seed is for a cluster that is drawn, {}, and {} is not: leave it out",
                                  kDrawn, names.cluster));
  PairCluster cluster = random_sites({.seed = *names.seed});
  cluster.name = fmt::format("{}, seed {}", kDrawn, *names.seed);
  return cluster;
}

// The letters and digits that all of them begin with, but for a number at the end of each.
std::string shared_beginning(const std::vector<std::string>& names) {
  std::string_view shared = names.front();
  for (const std::string& name : names) {
    const auto end = std::mismatch(shared.begin(), shared.end(), name.begin(), name.end()).first;
    shared = shared.substr(0, static_cast<std::size_t>(end - shared.begin()));
  }
  if (names.size() == 1) shared = shared.substr(0, shared.find_last_not_of("0123456789") + 1);
  return std::string(shared.substr(0, shared.find_last_not_of("-_. :/") + 1));
}

bool has_operators(const zoo::Model& model) {
  try {
    (void)pipeline::operators_of(model);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

Carried carried(const PipelineCase& one, std::size_t cut, bool forwards) {
  const pipeline::OperatorDag& dag = one.job->dag;
  std::map<pipeline::OperatorId, double> ratios;
  for (const pipeline::Message& message : one.plan.messages)
    if (std::cmp_equal(message.from_stage, cut))
      ratios[message.output] = forwards ? message.activation_ratio : message.gradient_ratio;
  Carried sum{.transfer = (forwards ? one.times.activations : one.times.gradients)[cut]};
  double elements = 0, sent = 0;
  for (const pipeline::OperatorId output :
       dag.crossing(static_cast<std::size_t>(one.plan.stages[cut].operators.end))) {
    if (!forwards && pipeline::is_integer(dag[output].dtype)) continue;
    const auto found = ratios.find(output);
    const double ratio = found == ratios.end() ? 1 : found->second;
    sum.dense_bytes += dag[output].output_bytes;
    sum.bytes += sent_bytes(dag[output], ratio);
    elements += static_cast<double>(sent_elements(dag[output], 1));
    sent += static_cast<double>(sent_elements(dag[output], ratio));
  }
  if (sent > 0) sum.ratio = elements / sent;
  return sum;
}

}  // namespace

std::vector<std::string> pipeline_models() {
  std::vector<std::string> names;
  for (const zoo::Model& model : zoo::models())
    if (has_operators(model)) names.emplace_back(model.name);
  return names;
}

std::int64_t usual_batch(const std::string& model, const std::vector<int>& micro_batches) {
  std::int64_t multiple = 1;
  for (const int number : micro_batches) {
    require_number("a number of micro-batches", number, 1, kMostSamples);
    multiple = std::lcm(multiple, std::int64_t{number});
    require_number("a batch", multiple, 1, kMostSamples);
  }
  return (zoo::find_model(model).batch + multiple - 1) / multiple * multiple;
}

PipelineJob::PipelineJob(const PipelineNames& names)
    : batch(batch_of(names)),
      micro_batches(names.micro_batches),
      dag(dag_of(names, batch)),
      cluster(cluster_of(names)),
      sites(site_names(cluster)),
      costs(dag, cluster, {.copies_of_parameters = 2.0 + names.optimizer_states}) {}

const std::string& PipelineJob::device(int number) const { return cluster.devices[index_of(number)].name; }

std::int64_t PipelineJob::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (const pipeline::Operator& op : dag.operators()) bytes += op.parameter_bytes;
  return bytes;
}

std::string micro_batches_text(int number) {
  return fmt::format("{} micro-batch{}", number, number == 1 ? "" : "es");
}

std::string describe(const PipelineJob& job) {
  const std::set<std::string> sites(job.sites.begin(), job.sites.end());
  return fmt::format(
      "{}: {}, {} of parameters, {} of {}; {}: {} in {}", job.dag.name(), counted(job.dag.size(), "operator"),
      format_bytes(job.parameter_bytes()), micro_batches_text(job.micro_batches),
      job.batch == 0 ? "the file's size"
                     : counted(static_cast<std::size_t>(job.batch / job.micro_batches), "sample"),
      job.cluster.name, counted(job.cluster.devices.size(), "device"), counted(sites.size(), "site"));
}

std::vector<std::string> site_names(const PairCluster& cluster) {
  const std::vector<std::vector<int>> communities = pipeline::ordered_communities(cluster);
  std::vector<std::string> found;
  std::set<std::string> different;
  for (const std::vector<int>& community : communities) {
    std::vector<std::string> devices;
    for (const int device : community) devices.push_back(cluster.devices[index_of(device)].name);
    found.push_back(shared_beginning(devices));
    different.insert(found.back());
  }
  const bool named = different.size() == found.size() && !different.contains("");
  std::vector<std::string> names(cluster.devices.size());
  for (std::size_t site = 0; site < communities.size(); ++site)
    for (const int device : communities[site])
      names[index_of(device)] = named ? found[site] : std::to_string(site);
  return names;
}

std::string text_of(const pipeline::LinkCompression& compression) {
  return compression.rule == pipeline::CompressionRule::none
             ? std::string(name_of(compression.rule))
             : fmt::format("{}, {:g}", name_of(compression.rule), compression.ratio);
}

std::vector<pipeline::PlanOptions> find_plans(const PipelinePlanNames& names, int micro_batches) {
  if (names.devices != "all" && names.devices != "fastest")
    throw ConfigError(no_such("use of devices", names.devices, {"all", "fastest"}));
  const bool fastest = names.devices == "fastest";
  const auto asked = [](const std::vector<std::string>& all, std::string_view name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  if (fastest && !asked(names.planners, "op-fence"))
    throw ConfigError("only op-fence chooses among devices: leave the use of devices out, or take op-fence");
  if (names.stages_per_device && !asked(names.schedules, "interleaved"))
    throw ConfigError(
        "several stages a device are of schedule interleaved: take it, or leave their number out");
  check(pipeline::LinkCompression{.rule = pipeline::CompressionRule::top_k, .ratio = names.ratio});
  std::vector<pipeline::PlanOptions> all;
  for (const std::string& planner : names.planners)
    for (const std::string& schedule : names.schedules)
      for (const std::string& compression : names.compressions) {
        pipeline::PlanOptions options{
            .method = pipeline::find_plan_method(planner),
            .schedule = pipeline::find_schedule_kind(schedule),
            .micro_batches = micro_batches,
            .compression = {.rule = pipeline::find_compression_rule(compression), .ratio = names.ratio}};
        if (options.schedule == pipeline::ScheduleKind::interleaved)
          options.stages_of_device = names.stages_per_device.value_or(2);
        if (fastest && options.method == pipeline::PlanMethod::op_fence)
          options.devices = pipeline::DeviceUse::fastest;
        all.push_back(options);
      }
  return all;
}

double PipelineCase::bubble() const {
  double idle = 0;
  for (const pipeline::Played::Place& place : played.places) idle += place.bubble_seconds;
  const double all = seconds() * static_cast<double>(played.places.size());
  return all > 0 ? idle / all : 0;
}

double PipelineCase::sent_bytes() const {
  double bytes = 0;
  for (std::size_t cut = 0; cut + 1 < plan.stages.size(); ++cut)
    if (plan.stages[cut].device != plan.stages[cut + 1].device)
      bytes += static_cast<double>(activations_over(*this, cut).bytes + gradients_over(*this, cut).bytes);
  return bytes * plan.micro_batches;
}

const std::string& PipelineCase::device_of(int place) const {
  return job->device(plan.stages[index_of(place)].device);
}

PipelineCase play_plan(const PipelineJob& job, pipeline::Plan plan, std::string planner,
                       std::string compression) {
  pipeline::PipelineTimes times = times_of(plan, job.costs);
  pipeline::Played played = play(times);
  std::vector<double> peaks = peak_bytes(plan, job.costs);
  return {.job = &job,
          .planner = std::move(planner),
          .compression = std::move(compression),
          .plan = std::move(plan),
          .times = std::move(times),
          .played = std::move(played),
          .peak_bytes = std::move(peaks)};
}

PipelineCase play_plan(const PipelineJob& job, const pipeline::PlanOptions& options) {
  return play_plan(job, pipeline::make_plan(job.costs, options), std::string(name_of(options.method)),
                   text_of(options.compression));
}

std::vector<double> speed_ups(const std::vector<PipelineCase>& cases) {
  std::map<std::pair<std::string, std::string>, double> first;
  std::vector<double> all;
  for (const PipelineCase& one : cases) {
    const auto found =
        first.emplace(std::pair(one.job->dag.name(), one.job->cluster.name), one.seconds()).first;
    all.push_back(found->second / one.seconds());
  }
  return all;
}

PlayedPlans play_plans(const std::deque<PipelineJob>& jobs, const PipelinePlanNames& names) {
  PlayedPlans plans;
  std::exception_ptr first;
  for (const PipelineJob& job : jobs)
    for (const pipeline::PlanOptions& options : find_plans(names, job.micro_batches)) {
      try {
        plans.cases.push_back(play_plan(job, options));
      } catch (const ConfigError& error) {
        if (!first) first = std::current_exception();
        plans.left_out.push_back(
            {.what = fmt::format("{} with {}, compression {}, {}, of {} on {}", name_of(options.method),
                                 name_of(options.schedule), text_of(options.compression),
                                 micro_batches_text(job.micro_batches), job.dag.name(), job.cluster.name),
             .reason = error.what()});
      }
    }
  if (plans.cases.empty() && first) std::rethrow_exception(first);
  return plans;
}

Carried activations_over(const PipelineCase& one, std::size_t cut) { return carried(one, cut, true); }
Carried gradients_over(const PipelineCase& one, std::size_t cut) { return carried(one, cut, false); }

nlohmann::ordered_json json_of(const PipelineCase& one) {
  const PipelineJob& job = *one.job;
  return {{"model", job.dag.name()},
          {"cluster", job.cluster.name},
          {"devices", one.times.shape.places},
          {"planner", one.planner},
          {"schedule", name_of(one.plan.schedule)},
          {"compression", one.compression},
          {"batch", job.batch},
          {"micro_batches", one.plan.micro_batches},
          {"stages", one.plan.stages.size()},
          {"iteration_seconds", one.seconds()},
          {"estimated_seconds", estimated_seconds(one.times)},
          {"bubble", one.bubble()},
          {"sent_bytes", one.sent_bytes()},
          {"peak_bytes", *std::max_element(one.peak_bytes.begin(), one.peak_bytes.end())}};
}

std::string to_json(const PlayedPlans& plans) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const std::vector<double> over_first = speed_ups(plans.cases);
  for (std::size_t i = 0; i < plans.cases.size(); ++i) {
    list.push_back(json_of(plans.cases[i]));
    list.back()["speed_up"] = over_first[i];
  }
  return list.dump(2) + "\n";
}

std::string plot(const std::vector<PipelineCase>& cases, const std::string& title) {
  std::vector<charts::BarPanel> panels;
  const PipelineJob* current = nullptr;
  for (const PipelineCase& one : cases) {
    if (one.job != current) {
      current = one.job;
      panels.push_back(
          {.title = fmt::format("{} on {}", current->dag.name(), current->cluster.name), .bars = {}});
    }
    double busy = 0;
    for (const pipeline::Played::Place& place : one.played.places) busy = std::max(busy, place.busy_seconds);
    const std::string compression = one.compression == "none" ? "" : ", " + one.compression;
    panels.back().bars.push_back(
        {.label = fmt::format("{}, {}{}", one.planner, name_of(one.plan.schedule), compression),
         .first = busy,
         .second = one.seconds() - busy});
  }
  return charts::bar_chart(panels, {.title = title,
                                    .first = "computation of the slowest device",
                                    .second = "its waits",
                                    .mark = "",
                                    .format = format_seconds});
}

Trace trace_of(const PipelineCase& one) {
  const pipeline::Lowered lowered = lower(one.times);
  Trace trace = to_trace(
      lowered, one.played,
      fmt::format("dear pipeline simulate, {}, {}, {}, compression {}, {}", one.job->dag.name(), one.planner,
                  name_of(one.plan.schedule), one.compression, counted(one.played.places.size(), "rank")),
      fmt::format("modelled: {}", one.job->cluster.name));
  for (Span& span : trace.spans) {
    const auto& message = lowered.work[static_cast<std::size_t>(span.step)].message;
    span.name += message ? " to " : " on ";
    span.name += one.device_of(message ? message->to : span.rank);
    if (message) span.lane = fmt::format("link to {}", one.device_of(message->to));
  }
  return trace;
}

}  // namespace dear::cases
