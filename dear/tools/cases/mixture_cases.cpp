#include "dear/tools/cases/mixture_cases.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/platform/cluster/presets.h"
#include "dear/predict/sim/simulate.h"

namespace dear::cases {
namespace {

using methods::moe::MixtureJob;
using methods::moe::Passed;
using methods::moe::Passes;

// The last of these is as any later one.
constexpr std::int64_t kIterations = 4;
constexpr int kMostMixtureRanks = 4096;        // a rank has a message to each other in every all-to-all
constexpr std::int64_t kMostTokens = 1 << 24;  // of a rank

std::int64_t experts_on(const Cluster& cluster, const methods::moe::MixtureModel& model) {
  return model.experts > 0 ? model.experts : model.experts_of_rank * cluster.ranks();
}

MixtureScenario scenario_of(const std::string& name, const Cluster& cluster, const ModelOptions& options,
                            const MixtureNames& names) {
  for (const auto& [has, what] : {std::pair(!cluster.stragglers.empty(), "stragglers"),
                                  std::pair(cluster.interference != Interference{}, "interference")})
    if (has)
      throw ConfigError(
          fmt::format("{} has {}, which {} not modelled with mixtures of experts: take a cluster without",
                      cluster.name, what, cluster.stragglers.empty() ? "is" : "are"));
  methods::moe::MixtureModel model = methods::moe::find_mixture_model(name);
  if (options.sample_size < 0 || options.sample_size > kMostTokens)
    throw ConfigError(fmt::format("a sequence of {} tokens cannot be: give at least 1 and at most {}",
                                  options.sample_size, kMostTokens));
  if (options.sample_size != 0) model.length = options.sample_size;
  if (cluster.ranks() > kMostMixtureRanks)
    throw ConfigError(fmt::format("{} ranks are too many for mixtures of experts: give at most {}",
                                  cluster.ranks(), kMostMixtureRanks));
  const zoo::Device& device = zoo::find_device(device_for(options, cluster));
  const methods::moe::MixtureOptions chosen{
      .batch = options.batch != 0 ? options.batch : batch_of(model, device.name),
      .dtype = options.dtype.empty() ? device.half_type : parse_dtype(options.dtype),
      .capacity_factor = names.capacity_factor,
      .gate = methods::moe::find_gate(names.gate)};
  if (chosen.batch > kMostTokens / model.length)
    throw ConfigError(fmt::format("{} samples of {} tokens are too many for a rank: give at most {} tokens",
                                  chosen.batch, model.length, kMostTokens));
  const std::int64_t experts = experts_on(cluster, model);
  if (chosen.capacity_factor > static_cast<double>(experts))
    throw ConfigError(fmt::format(
        "a capacity factor of {:g} gives each of {} experts more places than there are tokens: give "
        "at most {}",
        chosen.capacity_factor, experts, experts));
  MixtureJob job = methods::moe::make_job(model, device, cluster, chosen);
  return {.model = std::move(model),
          .device = &device,
          .cluster = cluster,
          .options = chosen,
          .job = std::move(job)};
}

nlohmann::ordered_json json_of(const MixtureCase& one) {
  const MixtureScenario& scenario = *one.scenario;
  const methods::moe::Times& times = one.passed.times;
  nlohmann::ordered_json ranges = nlohmann::ordered_json::array();
  for (const CutNames& cut : cuts_of(one))
    ranges.push_back({{"first", cut.first}, {"last", cut.last}, {"parts", cut.parts}});
  return {{"model", scenario.model.name},
          {"cluster", scenario.cluster.name},
          {"ranks", scenario.cluster.ranks()},
          {"overlap", one.overlap->name},
          {"device", scenario.device->name},
          {"dtype", name_of(scenario.options.dtype)},
          {"batch", scenario.options.batch},
          {"length", scenario.model.length},
          {"experts", scenario.experts()},
          {"gate", name_of(scenario.options.gate)},
          {"capacity_factor", scenario.options.capacity_factor},
          {"iteration_seconds", times.iteration_seconds},
          {"compute_seconds", times.compute_seconds},
          {"all_to_alls", scenario.job.graph.all_to_alls().size()},
          {"all_to_all_seconds", times.all_to_all_seconds},
          {"exposed_all_to_all_seconds", times.exposed_all_to_all_seconds},
          {"exposed_communication_seconds", times.exposed_seconds},
          {"parts", one.passed.most_parts()},
          {"ranges", std::move(ranges)},
          {"speed_up", one.speed_up()}};
}

}  // namespace

Passed passed_by(const MixtureJob& job, const Passes& overlap) {
  return methods::moe::run(job.graph, overlap, job.part_seconds, {.iterations = kIterations});
}

bool is_mixture(std::string_view model) {
  const auto& all = methods::moe::mixture_models();
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.name == model; });
}

Overlaps find_overlaps(const MixtureNames& names) {
  Overlaps overlaps;
  for (const std::string& name : names.overlaps) overlaps.push_back(&methods::moe::find_passes(name));
  if (overlaps.empty())
    for (const Passes& passes : methods::moe::all_passes()) overlaps.push_back(&passes);
  return overlaps;
}

std::int64_t MixtureScenario::experts() const { return experts_on(cluster, model); }

std::vector<MixtureScenario> mixture_scenarios(const ScenarioOptions& options, const MixtureNames& names) {
  std::vector<std::optional<int>> sizes(options.ranks.begin(), options.ranks.end());
  if (sizes.empty()) sizes.emplace_back();
  std::vector<MixtureScenario> all;
  for (const ModelName& model : options.models)
    for (const std::string& cluster : options.clusters)
      for (const std::optional<int>& ranks : sizes)
        all.push_back(
            scenario_of(std::get<std::string>(model), find_cluster(cluster, ranks), options.model, names));
  return all;
}

std::string describe(const MixtureScenario& scenario) {
  const auto& model = scenario.model;
  return fmt::format(
      "{}: {} layers, {} of them with {} experts, {} on a rank and {} for a token ({} samples of {} tokens a "
      "rank on {} in {}, by its roofline; gate {}, capacity factor {:g})",
      model.name, model.layers, model.mixtures(), scenario.experts(),
      scenario.experts() / scenario.cluster.ranks(), model.choices, scenario.options.batch, model.length,
      scenario.device->name, name_of(scenario.options.dtype), name_of(scenario.options.gate),
      scenario.options.capacity_factor);
}

std::vector<MixtureCase> simulate(const MixtureScenario& scenario, const Overlaps& overlaps) {
  const Passed experts = passed_by(scenario.job, methods::moe::find_passes("experts"));
  std::vector<MixtureCase> cases;
  for (const Passes* const overlap : overlaps)
    cases.push_back({.scenario = &scenario,
                     .overlap = overlap,
                     .passed = overlap->name == "experts" ? experts : passed_by(scenario.job, *overlap),
                     .experts_seconds = experts.times.iteration_seconds});
  return cases;
}

std::vector<MixtureCase> simulate(const std::vector<MixtureScenario>& scenarios, const Overlaps& overlaps) {
  std::vector<MixtureCase> cases;
  for (const MixtureScenario& scenario : scenarios)
    for (MixtureCase& one : simulate(scenario, overlaps)) cases.push_back(std::move(one));
  return cases;
}

std::vector<CutNames> cuts_of(const MixtureCase& one) {
  const methods::moe::InstructionGraph cut = hide(one.scenario->job.graph, one.passed.hiding);
  std::vector<CutNames> names;
  for (const methods::moe::CutRange& range : one.passed.ranges)
    names.push_back({.first = cut[cut.order()[range.begin]].name,
                     .last = cut[cut.order()[range.end - 1]].name,
                     .parts = range.parts});
  return names;
}

std::string to_json(const std::vector<MixtureCase>& cases) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MixtureCase& one : cases) list.push_back(json_of(one));
  return list.dump(2) + "\n";
}

std::string plot(const std::vector<MixtureCase>& cases, const std::string& title) {
  std::vector<charts::BarPanel> panels;
  const MixtureScenario* current = nullptr;
  for (const MixtureCase& one : cases) {
    if (one.scenario != current) {
      current = one.scenario;
      panels.push_back(panel_of(current->model.name, current->cluster, current->cluster.ranks()));
    }
    const double exposed = one.passed.times.exposed_seconds;
    panels.back().bars.push_back(
        {.label = std::string(one.overlap->name), .first = one.seconds() - exposed, .second = exposed});
  }
  return chart_of(panels, title);
}

Trace trace_of(const MixtureCase& one) {
  const Cluster& cluster = one.scenario->cluster;
  return to_trace(one.passed.graph, one.passed.times,
                  fmt::format("dear simulate, {}, overlap {}, {}", one.scenario->model.name,
                              one.overlap->name, counted(index_of(cluster.ranks()), "rank")),
                  sim::describe(cluster));
}

}  // namespace dear::cases
