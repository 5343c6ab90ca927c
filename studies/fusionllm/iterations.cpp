#include "studies/fusionllm/iterations.h"

#include "studies/training/threads.h"
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/pipeline/communities.h"
#include "dear/methods/pipeline/timeline.h"
#include "dear/methods/pipeline/zoo_operators.h"
#include "dear/workload/zoo/models.h"

namespace dear::studies::fusionllm {

namespace pipeline = methods::pipeline;
namespace {

constexpr Drawn kMild{100e6, 1e9};

std::string site_of(const PairDevice& device) { return device.name.substr(0, device.name.find('-')); }

// Lists the devices of a site one after the other.
PairCluster by_site(const PairCluster& cluster) {
  std::vector<std::size_t> order(cluster.devices.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return site_of(cluster.devices[one]) < site_of(cluster.devices[other]);
  });
  PairCluster sorted = cluster;
  for (std::size_t from = 0; from < order.size(); ++from) {
    sorted.devices[from] = cluster.devices[order[from]];
    for (std::size_t to = 0; to < order.size(); ++to) {
      sorted.bytes_per_second[from][to] = cluster.bytes_per_second[order[from]][order[to]];
      sorted.latency_seconds[from][to] = cluster.latency_seconds[order[from]][order[to]];
    }
  }
  return sorted;
}

PairCluster devices_of(const Setting& setting, std::uint64_t seed) {
  SiteOptions sites = setting.sites;
  sites.seed = seed;
  PairCluster cluster = random_sites(sites);
  for (std::size_t from = 0; from < cluster.devices.size(); ++from)
    for (std::size_t to = 0; to < from; ++to)
      if (site_of(cluster.devices[from]) != site_of(cluster.devices[to]))
        cluster.bytes_per_second[from][to] *= setting.way_back;
  return setting.listed_by_site ? by_site(cluster) : cluster;
}

bool is_gpt(const std::string& model) { return model.starts_with("gpt"); }

pipeline::OperatorDag operators_of(const Setting& setting, const std::string& name) {
  const bool gpt = is_gpt(name);
  const pipeline::OperatorDag dag =
      pipeline::operators_of(zoo::find_model(gpt && !setting.larger_gpt.empty() ? setting.larger_gpt : name),
                             {.batch = gpt ? setting.texts : setting.images,
                              .micro_batches = setting.micro_batches,
                              .dtype = setting.half ? DType::f16 : DType::f32});
  if (setting.tied) return dag;
  std::vector<pipeline::Operator> operators = dag.operators();
  for (pipeline::Operator& one : operators)
    if (one.tied) {
      one.parameter_bytes += dag[*one.tied].parameter_bytes;
      one.tied.reset();
    }
  return {dag.name(), std::move(operators)};
}

// Counts elements and bytes that travel in an iteration.
std::pair<double, double> travelling(const pipeline::Plan& plan, const pipeline::OperatorDag& dag) {
  std::map<std::pair<int, pipeline::OperatorId>, const pipeline::Message*> compressed;
  for (const pipeline::Message& message : plan.messages)
    compressed[{message.from_stage, message.output}] = &message;
  double elements = 0, bytes = 0;
  const auto add = [&](const pipeline::Operator& output, double ratio) {
    elements += static_cast<double>(sent_elements(output, ratio));
    bytes += static_cast<double>(sent_bytes(output, ratio));
  };
  for (std::size_t s = 0; s + 1 < plan.stages.size(); ++s) {
    if (plan.stages[s].device == plan.stages[s + 1].device) continue;
    for (const pipeline::OperatorId output :
         dag.crossing(static_cast<std::size_t>(plan.stages[s].operators.end))) {
      const auto found = compressed.find({static_cast<int>(s), output});
      add(dag[output], found == compressed.end() ? 1 : found->second->activation_ratio);
      if (!pipeline::is_integer(dag[output].dtype))
        add(dag[output], found == compressed.end() ? 1 : found->second->gradient_ratio);
    }
  }
  return {elements * plan.micro_batches, bytes * plan.micro_batches};
}

Iteration played(const pipeline::StageCosts& costs, const pipeline::Plan& plan) {
  const pipeline::PipelineTimes times = times_of(plan, costs);
  const pipeline::Played played = play(times);
  const std::vector<double> peaks = peak_bytes(plan, costs);
  const auto [elements, bytes] = travelling(plan, costs.dag());
  int between_sites = 0;
  for (std::size_t s = 0; s + 1 < plan.stages.size(); ++s) {
    const auto site = [&](std::size_t stage) {
      return site_of(costs.cluster().devices[index_of(plan.stages[stage].device)]);
    };
    between_sites += site(s) != site(s + 1) ? 1 : 0;
  }
  double idle = 0;
  for (const pipeline::Played::Place& place : played.places) idle += place.bubble_seconds;
  return {.setting = {},
          .model = {},
          .schedule = plan.schedule,
          .micro_batches = plan.micro_batches,
          .devices = plan.places(),
          .between_sites = between_sites,
          .seconds = played.iteration_seconds,
          .estimated_seconds = estimated_seconds(times),
          .bubble = idle / (played.iteration_seconds * static_cast<double>(played.places.size())),
          .elements = elements,
          .bytes = bytes,
          .peak_bytes = *std::max_element(peaks.begin(), peaks.end())};
}

Setting changed(const Setting& from, std::string name, std::string says, void (*change)(Setting&)) {
  Setting setting = from;
  setting.name = std::move(name);
  setting.says = std::move(says);
  change(setting);
  return setting;
}

}  // namespace

const std::vector<Setting>& assumptions() {
  static const std::vector<Setting> kTable = [] {
    const Setting drawn{
        .name = "as drawn",
        .says =
            "48 devices in 6 sites at 30, 15 or 8 TFLOP/s, listed in an order that is drawn; 1 to 10 Gb/s "
            "inside of a site, 8 to 100 Mb/s and 10 to 100 ms between two; fp32, 48 micro-batches of 2 "
            "images "
            "or 1 text, a ratio of 100, 1F1B; the GPT-2 is the one of 124 million parameters"};
    return std::vector<Setting>{
        drawn,
        changed(drawn, "listed by site",
                "rivals know which devices are near each other, and pass site by site",
                [](Setting& one) { one.listed_by_site = true; }),
        changed(drawn, "mild links", "100 Mb/s to 1 Gb/s between sites",
                [](Setting& one) { one.sites.between_bits_per_second = kMild; }),
        changed(drawn, "listed by site, mild links", "both",
                [](Setting& one) {
                  one.listed_by_site = true;
                  one.sites.between_bits_per_second = kMild;
                }),
        changed(drawn, "8 micro-batches", "the same batch in 8 parts",
                [](Setting& one) { one.micro_batches = 8; }),
        changed(drawn, "ratio 10", "one element in 10 is kept", [](Setting& one) { one.ratio = 10; }),
        changed(drawn, "16 bits", "parameters, activations and their gradients have 16 bits",
                [](Setting& one) { one.half = true; }),
        changed(drawn, "untied", "the last matrix of a GPT-2 is its own, and no gradients are exchanged",
                [](Setting& one) {
                  one.tied = false;
                  one.of_gpt = true;
                }),
        changed(drawn, "GPT-2 XL", "the GPT-2 is the one of 1.56 billion parameters", [](Setting& one) {
          one.larger_gpt = "gpt2-xl";
          one.of_gpt = true;
        })};
  }();
  return kTable;
}

const std::vector<Setting>& topologies() {
  static const std::vector<Setting> kTable = [] {
    const Setting& drawn = assumptions().front();
    const auto sites = [&](std::string name, std::string says, void (*change)(Setting&)) {
      return changed(drawn, std::move(name), std::move(says), change);
    };
    return std::vector<Setting>{
        sites("one site", "1 to 10 Gb/s between all devices", [](Setting& one) { one.sites.sites = 1; }),
        sites("2 sites", "24 devices each", [](Setting& one) { one.sites.sites = 2; }),
        sites("3 sites", "16 devices each, each site with another speed",
              [](Setting& one) { one.sites.sites = 3; }),
        sites("6 sites", "8 devices each, as drawn", [](Setting&) {}),
        sites("12 sites", "4 devices each", [](Setting& one) { one.sites.sites = 12; }),
        sites("48 sites", "1 device each, 8 to 100 Mb/s between all",
              [](Setting& one) { one.sites.sites = 48; }),
        sites("no sites", "8 Mb/s to 10 Gb/s and 0.1 to 100 ms between any two devices",
              [](Setting& one) {
                one.sites.sites = 1;
                one.sites.inside_bits_per_second = {8e6, kFastestLink};
                one.sites.inside_latency_seconds = {1e-4, 1e-1};
              }),
        sites("slow way back", "6 sites; between them one direction of each link has a tenth of the other",
              [](Setting& one) { one.way_back = 0.1; })};
  }();
  return kTable;
}

const std::vector<Setting>& schedules() {
  static const std::vector<Setting> kTable = [] {
    std::vector<Setting> all;
    for (const Setting* const from : {&assumptions().front(), &topologies().front()})
      for (const pipeline::ScheduleInfo& schedule : pipeline::schedule_kinds()) {
        all.push_back(*from);
        all.back().schedule = schedule.kind;
        if (schedule.kind == ScheduleKind::interleaved) all.back().stages_of_device = 2;
      }
    return all;
  }();
  return kTable;
}

Setting with_bandwidth_between(double bits_per_second) {
  Setting setting = assumptions().front();
  setting.name = fmt::format("{:g} Mb/s", bits_per_second / 1e6);
  setting.sites.inside_bits_per_second = {kFastestLink, kFastestLink};
  setting.sites.between_bits_per_second = {bits_per_second, bits_per_second};
  return setting;
}

std::vector<Asked> every_plan() {
  std::vector<Asked> all;
  for (const pipeline::PlanMethodInfo& method : pipeline::plan_methods())
    for (const pipeline::CompressionRuleInfo& rule : pipeline::compression_rules())
      all.push_back({.method = method.method, .rule = rule.rule});
  return all;
}

std::vector<Asked> pictured_plans() {
  return {{.rule = CompressionRule::ada_top_k},
          {.rule = CompressionRule::top_k},
          {},
          {.method = PlanMethod::plain_dp},
          {.method = PlanMethod::equal_number, .rule = CompressionRule::ada_top_k},
          {.method = PlanMethod::equal_number, .rule = CompressionRule::top_k},
          {.method = PlanMethod::equal_number}};
}

void Iterations::add(Iterations more) {
  std::move(more.all.begin(), more.all.end(), std::back_inserter(all));
  std::move(more.left_out.begin(), more.left_out.end(), std::back_inserter(left_out));
}

const Iteration* Iterations::find(std::string_view setting, std::string_view model, std::uint64_t seed,
                                  PlanMethod method, CompressionRule rule, DeviceUse use) const {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Iteration& one) {
    return one.setting == setting && one.model == model && one.seed == seed && one.method == method &&
           one.rule == rule && one.use == use;
  });
  return found == all.end() ? nullptr : &*found;
}

Iterations play(const Setting& setting, const std::string& model, std::uint64_t seed,
                const std::vector<Asked>& asked) {
  const pipeline::OperatorDag dag = operators_of(setting, model);
  const PairCluster cluster = devices_of(setting, seed);
  const pipeline::StageCosts costs(dag, cluster, {.copies_of_parameters = 4});
  Iterations iterations;
  for (const Asked& one : asked) {
    try {
      Iteration iteration =
          played(costs, make_plan(costs, {.method = one.method,
                                          .schedule = setting.schedule,
                                          .micro_batches = setting.micro_batches,
                                          .stages_of_device = setting.stages_of_device,
                                          .compression = {.rule = one.rule, .ratio = setting.ratio},
                                          .devices = one.use}));
      iteration.setting = setting.name;
      iteration.model = model;
      iteration.seed = seed;
      iteration.between_bits_per_second = setting.sites.between_bits_per_second.least;
      iteration.method = one.method;
      iteration.rule = one.rule;
      iteration.use = one.use;
      iterations.all.push_back(std::move(iteration));
    } catch (const ConfigError& error) {
      iterations.left_out.push_back(
          {.what = fmt::format("{}, {}, {}, of `{}`, {}, seed {}", name_of(one.method),
                               name_of(setting.schedule), name_of(one.rule), model, setting.name, seed),
           .reason = error.what()});
    }
  }
  return iterations;
}

Iterations play_all(const std::vector<Setting>& settings, const PlayOptions& options,
                    const std::vector<Asked>& asked, std::string_view part,
                    const studies::Progress& progress) {
  const auto seeds = static_cast<std::size_t>(options.seeds);
  const std::size_t models = options.models.size();
  std::vector<Iterations> parts(settings.size() * models * seeds);
  const auto play_one = [&](std::size_t i) {
    const Setting& setting = settings[i / seeds / models];
    const std::string& model = options.models[i / seeds % models];
    if (is_gpt(model) || !setting.of_gpt) parts[i] = play(setting, model, i % seeds + 1, asked);
  };
  training::for_each_in_threads(parts.size(), play_one, part, progress);
  Iterations all;
  for (Iterations& one : parts) all.add(std::move(one));
  return all;
}

std::size_t communities_of(const Setting& setting, std::uint64_t seed) {
  return pipeline::ordered_communities(devices_of(setting, seed)).size();
}

}  // namespace dear::studies::fusionllm
