#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "dear/base/launch/launcher.h"
#include "dear/base/trace/chrome.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/backends/backends.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/group/exchange.h"
#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/predict/sim/simulate.h"
#include "dear/schedule/policies/policy.h"
#include "dear/systems/train_command/trace_gather.h"
#include "dear/systems/train_command/train_result.h"
#include "dear/tools/case_options/kfac_policies.h"
#include "dear/tools/case_options/policy_options.h"
#include "dear/tools/case_options/scenario.h"
#include "dear/tools/cases/compression_choice.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/command/kfac_replay.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/run_as_ranks.h"
#include "dear/tools/options/table.h"
#include "dear/tools/replay/replay.h"

namespace dear::cli {
namespace {

struct ReplayArguments {
  std::string model;
  ScenarioOptions job;  // device, batch, size, dtype
  std::optional<std::int64_t> workers;
  PolicyOptions policies;
  KfacPolicyOptions kfac;
  cases::CompressionNames compression;
  std::optional<std::string> network;
  std::string backend;
  std::string predict;
  ReplayOptions options;
  std::string timeout = "120s";
  bool bind = false;
  std::optional<std::string> json, trace;
};

// Checked options of `dear replay`: no later step refuses any of them.
struct ReplaySettings {
  int workers = 1;
  Workload workload;
  std::vector<const Policy*> policies;
  cases::Compressions compressions;
  std::string device;  // that codecs are modelled for; empty: measured
  Fusion fusion;
  std::optional<ModelledNetwork> network;
  std::optional<Cluster> predicted_on;
  double timeout_seconds = 0;
  std::string json, trace;
  std::optional<KfacReplaySettings> kfac{};  // then nothing else is replayed
};

struct Run {
  const Policy* policy = nullptr;
  std::string compression;  // empty: dense
  Spread iteration_seconds;
  double compute_seconds = 0;
  double codec_seconds = 0;      // in turns with computation
  double predicted_seconds = 0;  // 0 when nothing was asked to predict it

  [[nodiscard]] double exposed_seconds() const {
    constexpr double kRounding = 1e-9;  // of sums of times, as a part of them
    const double exposed = iteration_seconds.median - compute_seconds - codec_seconds;
    return exposed > kRounding * compute_seconds ? exposed : 0;
  }
};

// Policies of K-FAC are planned by what collectives and inverses cost, which a model of the network tells.
KfacReplaySettings check_kfac(const CLI::App& command, const ReplayArguments& arguments,
                              const ReplaySettings& settings, const Policies& policies) {
  if (!policies.others.empty())
    throw ConfigError(
        fmt::format("--policy {} is not K-FAC, whose iterations have other parts: replay it by itself",
                    policies.others.front()));
  refuse_beside("K-FAC", command,
                {"--compress", "--codec", "--union-density", "--scale-compute", "--checkpoint-activations"});
  if (!settings.predicted_on)
    throw ConfigError(
        "K-FAC is planned by what collectives cost: give --network of links that are alike, or --predict "
        "with "
        "the cluster that "
        "`dear bench collective --cluster` wrote");
  cases::KfacNames names = arguments.kfac.names(policies.kfac);
  names.algorithm = "ring";
  names.fusion = arguments.policies.fusion.value_or(names.fusion);
  const std::string& cluster = arguments.predict.empty() ? *arguments.network : arguments.predict;
  KfacReplaySettings kfac{.scenarios = cases::scenarios({.models = {arguments.model},
                                                         .clusters = {cluster},
                                                         .ranks = {settings.workers},
                                                         .model = arguments.job.model}),
                          .options = cases::find_options(names),
                          .iterations = arguments.options.iterations,
                          .json = settings.json,
                          .trace = settings.trace};
  cases::kfac_job(kfac.scenarios.front(), kfac.options.fusion, kfac.options.times);  // refuses what cannot be
  if (!kfac.trace.empty()) refuse_several("--trace writes one replay", policies.kfac.size(), "--policy");
  return kfac;
}

ReplaySettings check(const CLI::App& command, const ReplayArguments& arguments,
                     const LaunchEnvironment& environment) {
  ReplaySettings settings;
  settings.workers = checked_workers(arguments.workers, 2, environment);
  refuse_bind_under_launcher(arguments.bind, environment);
  settings.workload = read_job(arguments.job, arguments.model);
  const Policies divided = divide(arguments.policies.policies);
  arguments.kfac.require_kfac(divided.kfac);
  const PolicyChoice choice = choose_policies(arguments.policies);
  if (divided.kfac.empty())
    for (const std::string& name : choice.policies)
      settings.policies.push_back(&find_training_policy(cases::plain_policy(name)));
  if (choice.buckets) {
    settings.fusion = Fusion(*choice.buckets);
  } else if (arguments.policies.fusion) {
    settings.fusion = Fusion::parse(*arguments.policies.fusion);
  }
  settings.compressions = cases::Compressions(arguments.compression);
  settings.device = arguments.job.model.device;
  if (arguments.network)
    settings.network = checked_network(*arguments.network, arguments.backend, settings.workers);
  if (!arguments.backend.empty()) find_backend(arguments.backend);
  if (!arguments.predict.empty()) {
    settings.predicted_on = find_cluster(arguments.predict, settings.workers);
  } else if (settings.network && std::holds_alternative<Network>(*settings.network)) {
    settings.predicted_on = find_cluster(*arguments.network, settings.workers);
  }
  settings.timeout_seconds = checked_timeout(arguments.timeout, "120s");
  settings.json = checked_output_path("--json", arguments.json);
  settings.trace = checked_output_path("--trace", arguments.trace);
  refuse_shared_outputs({{"--trace", settings.trace}, {"--json", settings.json}});
  if (!divided.kfac.empty()) {
    settings.kfac = check_kfac(command, arguments, settings, divided);
    return settings;
  }
  if (!settings.trace.empty())
    refuse_several(
        "--trace writes the last replay of one policy, with one compression at most",
        settings.policies.size() * std::max<std::size_t>(1, arguments.compression.compressions.size()),
        "--policy and --compress");
  return settings;
}

std::string common_settings(const ReplaySettings& settings, const ReplayArguments& arguments) {
  Digest job;
  for (const Layer& layer : settings.workload.layers)
    job.add(fmt::format("{} {} {}", layer.name, layer.forward_seconds, layer.backward_seconds));
  for (const Tensor& tensor : settings.workload.tensors)
    job.add(fmt::format("{} {} {}", tensor.name, tensor.elements, name_of(tensor.dtype)));
  const std::string network = settings.network ? name_of(*settings.network) : "real";
  if (settings.kfac)
    return fmt::format("{}, network {}, workload {}", describe(*settings.kfac), network, job.hex());
  std::vector<std::string_view> names;
  for (const Policy* policy : settings.policies) names.push_back(policy->name);
  return fmt::format(
      "policies {}, compressions {}, fusion {}, network {}, iterations {}, workload {}, trace {}",
      fmt::join(names, " "), fmt::join(arguments.compression.compressions, " "), settings.fusion.text(),
      network, arguments.options.iterations, job.hex(), !settings.trace.empty());
}

// None, and those asked for, with the codec's times of rank 0, which `said` puts into words.
std::vector<std::optional<CompressionModel>> ways(ReplaySettings& settings, const Group& group,
                                                  std::string& said) {
  const cases::Scenario here{.workload = settings.workload, .device = settings.device};
  std::vector<std::optional<CompressionModel>> ways(1);
  for (auto& [model, codec] : settings.compressions.in(here, group.size())) {
    model.codec = comm::all_gather_values(group, model.codec).front();
    ways.emplace_back(std::move(model));
    said += codec + "\n";
  }
  return ways;
}

cost::CollectiveTimes times_of(const ReplaySettings& settings, const Group& group) {
  if (!settings.predicted_on) return {.ranks = group.size()};
  return cost::times_on(*settings.predicted_on, {.algorithm = "ring"});
}

double predict(const ReplaySettings& settings, const Policy& policy, const Grouping& grouping,
               const cost::CollectiveTimes& times, const std::optional<CompressionModel>& compression) {
  if (!settings.predicted_on) return 0;
  return sim::evaluate(policy, settings.workload, grouping, *settings.predicted_on, times,
                       {.updates_share_compute = false, .compression = compression})
      .iteration.seconds;
}

double codec_seconds_of(const std::vector<Encoding>& encodings) {
  double seconds = 0;
  for (const Encoding& one : encodings) {
    if (one.dense()) continue;
    seconds += one.decode_seconds;
    for (const double encode : one.encode_seconds) seconds += encode;
  }
  return seconds;
}

Run replay_one(const ReplaySettings& settings, const ReplayArguments& arguments, const Policy& policy,
               const std::optional<CompressionModel>& compression, const Group& group,
               std::optional<Trace>& trace) {
  const Grouping grouping = settings.fusion(settings.workload);
  const cost::CollectiveTimes times = times_of(settings, group);
  const CompressedSchedule made =
      sim::schedule_of(policy, settings.workload, grouping, times, {.compression = compression});
  ReplayOptions options = arguments.options;
  options.encodings = made.encodings;
  options.codec_shares_compute = compression && compression->codec.shares_compute;
  const Replayed run = replay(made.schedule, settings.workload, grouping, group, options);
  if (!settings.trace.empty()) {
    Trace mine =
        sim::to_trace(made.schedule, settings.workload, run.spans, group.modelled_network(), group.size());
    mine.title =
        fmt::format("dear replay, policy {}, {}", policy.name, counted(index_of(group.size()), "rank"));
    for (Span& span : mine.spans) span.rank = group.rank();
    trace = train_command::gather_trace(group, mine);
  }
  // The first half of the iterations warms up, as in a simulation.
  const auto half = static_cast<std::ptrdiff_t>(run.iteration_seconds.size() / 2);
  return {.policy = &policy,
          .compression = compression ? compression->compression.text() : std::string(),
          .iteration_seconds = spread_of({run.iteration_seconds.begin() + half, run.iteration_seconds.end()}),
          .compute_seconds = run.compute_seconds,
          .codec_seconds = options.codec_shares_compute ? codec_seconds_of(made.encodings) : 0,
          .predicted_seconds = predict(settings, policy, grouping, times, compression)};
}

std::string to_json(const ReplaySettings& settings, const std::vector<Run>& runs, const Group& group) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Run& run : runs) {
    nlohmann::ordered_json row{{"model", settings.workload.name},
                               {"ranks", group.size()},
                               {"policy", run.policy->name},
                               {"fusion", settings.fusion.text()},
                               {"network", group.modelled_network()},
                               {"backend", group.description()},
                               {"iteration_seconds",
                                {{"median", run.iteration_seconds.median},
                                 {"p10", run.iteration_seconds.p10},
                                 {"p90", run.iteration_seconds.p90}}},
                               {"compute_seconds", run.compute_seconds},
                               {"exposed_communication_seconds", run.exposed_seconds()}};
    if (run.predicted_seconds > 0) row["simulated_seconds"] = run.predicted_seconds;
    if (!run.compression.empty()) row["compression"] = run.compression;
    rows.push_back(std::move(row));
  }
  return rows.dump(2) + "\n";
}

void print(const ReplaySettings& settings, const std::vector<Run>& runs) {
  const bool compresses =
      std::any_of(runs.begin(), runs.end(), [](const Run& run) { return !run.compression.empty(); });
  std::vector<std::string> header{"policy"};
  if (compresses) header.emplace_back("compression");
  header.insert(header.end(), {"median iteration", "p10", "p90", "compute", "exposed comm.", "speed-up"});
  if (settings.predicted_on) header.insert(header.end(), {"simulated", "replayed / simulated"});
  Table table(header, {.left_columns = compresses ? 2U : 1U});
  for (const Run& run : runs) {
    const Spread& seconds = run.iteration_seconds;
    std::vector<std::string> row{std::string(run.policy->name)};
    if (compresses) row.push_back(run.compression.empty() ? "-" : run.compression);
    row.insert(row.end(),
               {format_seconds(seconds.median), format_seconds(seconds.p10), format_seconds(seconds.p90),
                format_seconds(run.compute_seconds), format_seconds(run.exposed_seconds()),
                fmt::format("{:.2f}", runs.front().iteration_seconds.median / seconds.median)});
    if (settings.predicted_on) {
      row.push_back(format_seconds(run.predicted_seconds));
      row.push_back(fmt::format("{:.3f}", seconds.median / run.predicted_seconds));
    }
    table.add(std::move(row));
  }
  std::cout << table.to_string() << std::flush;
}

void run_rank(const ReplayArguments& arguments, ReplaySettings& settings, const Group& group,
              std::string said) {
  if (settings.kfac) return replay_kfac(*settings.kfac, group, said);
  std::vector<Run> runs;
  std::optional<Trace> trace;
  const std::vector<std::optional<CompressionModel>> compressions = ways(settings, group, said);
  for (const Policy* policy : settings.policies)
    for (const std::optional<CompressionModel>& compression : compressions)
      runs.push_back(replay_one(settings, arguments, *policy, compression, group, trace));
  if (group.rank() != 0) return;
  std::cout << fmt::format("replaying {}: forward {}, backward {}, {} of parameters on each of {} ranks\n{}",
                           settings.workload.name, format_seconds(settings.workload.forward_seconds()),
                           format_seconds(settings.workload.backward_seconds()),
                           format_bytes(settings.workload.bytes()), group.size(), said)
            << "Computation is timed, not done; communication is real"
            << (settings.network ? " and takes the time of the modelled network" : "") << ".\n\n";
  print(settings, runs);
  write_checked([&] {
    if (!settings.json.empty())
      write_results(settings.json, to_json(settings, runs, group), of_replay(group));
    if (trace) write_chrome_trace(*trace, settings.trace);
  });
}

void run_replay_command(const CLI::App& command, const ReplayArguments& arguments) {
  ReplaySettings settings;
  run_as_ranks(
      "dear replay",
      [&](const LaunchEnvironment& environment) {
        settings = check(command, arguments, environment);
        return Ranks{.workers = settings.workers,
                     .bind = arguments.bind,
                     .group = {.timeout = std::chrono::duration<double>(settings.timeout_seconds),
                               .network = settings.network,
                               .backend = arguments.backend},
                     .settings = common_settings(settings, arguments)};
      },
      [&](const Group& group, const std::string& said) { run_rank(arguments, settings, group, said); });
}

}  // namespace

void add_replay_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "replay",
      "Run a workload's communication for real, under several policies, with its computation timed");
  const OptionAdder add(*command);
  const auto arguments = std::make_shared<ReplayArguments>();
  add("--model", arguments->model, "M",
      "Model by name (`dear models` lists them), or a workload file, as `dear profile` and "
      "`dear train --profile` write it")
      ->required();
  arguments->job.add_job_to(*command);
  add("--workers", arguments->workers, "N",
      "Ranks on this host (default 2); under a launcher, those that it started")
      ->check(CLI::Range(1, launch::kMostRanks));
  arguments->policies.add_to(*command, "How tensors are grouped: a size, layer, or all", "25MiB");
  arguments->kfac.add_to(*command);
  add_compression_to(*command, arguments->compression);
  add("--network", arguments->network, "NETWORK",
      "Model a network, as in `dear train`; default: the real one");
  add("--backend", arguments->backend, "NAME",
      "What carries collectives: " + names_in(backend_table()) +
          " (default: the fastest that reaches all ranks)");
  add("--predict", arguments->predict, "CLUSTER",
      "Show beside it what `dear simulate` says for rings on this cluster, such as the file that "
      "`dear bench collective --cluster` wrote (default: the modelled network)");
  add.with_default("--iterations", arguments->options.iterations, "K", "Iterations; the first half warms up")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1'000'000}));
  add.with_default("--timeout", arguments->timeout, "TIME", "How long to wait for another rank");
  command->add_flag(kBindOption, arguments->bind, "Keep each worker on its part of the cores");
  add("--json", arguments->json, "FILE", "Write the results to FILE");
  add("--trace", arguments->trace, "FILE", "Write a timeline of all ranks for https://ui.perfetto.dev");
  command->callback([command, arguments] { run_replay_command(*command, *arguments); });
}

}  // namespace dear::cli
