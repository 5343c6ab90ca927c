#include "studies/aggregation/run.h"
#include "studies/command/study_commands.h"
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/backends/backends.h"
#include "dear/comm/backends/environment.h"
#include "dear/platform/cluster/presets.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/run_as_ranks.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

constexpr std::int64_t kMostWorkers = 64;  // the aggregator has two threads for each
constexpr std::int64_t kMostElements = std::int64_t{1} << 30;

struct AggregateArguments {
  std::optional<std::int64_t> workers;
  std::string elements = "4M";
  studies::aggregation::RunOptions run;
  std::optional<std::string> network;
  std::string backend;
  std::string timeout = "120s";
  bool bind = false;
  std::optional<std::string> json;
};

struct AggregateSettings {
  int workers = 1;
  studies::aggregation::RunOptions run;
  std::optional<Network> network;
  double timeout_seconds = 0;
  std::string json;
};

// "4M" and "512K" are multiples of 1024, as sizes are; the letter may be missing.
std::int64_t checked_elements(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of("0123456789KMG") == std::string::npos;
  const std::int64_t elements =
      plain ? parse_option("--elements",
                           [&] {
                             const bool has_letter = text.find_first_of("KMG") != std::string::npos;
                             return parse_bytes(has_letter ? text + "iB" : text + "B");
                           })
            : 0;
  if (elements < 1 || elements > kMostElements)
    throw ConfigError(
        fmt::format("--elements is '{}': give a number from 1 to 1G, such as 500000, 512K or 4M", text));
  return elements;
}

// Under a launcher one of its ranks is the aggregator.
int checked_senders(const std::optional<std::int64_t>& given, const LaunchEnvironment& environment) {
  if (given) check_range("--workers", *given, 1, kMostWorkers);
  if (environment.size == 1) return static_cast<int>(given.value_or(3));
  const int workers = environment.size - 1;
  if (given.value_or(workers) != workers || workers > kMostWorkers) {
    throw ConfigError(fmt::format(
        "--workers is {}, but {} has started {} ranks, the last of which is the aggregator: start "
        "one rank more than there are workers, and at most {}",
        given.value_or(workers), environment.launcher, environment.size, kMostWorkers + 1));
  }
  return workers;
}

AggregateSettings check(const AggregateArguments& arguments, const LaunchEnvironment& environment) {
  AggregateSettings settings{.workers = checked_senders(arguments.workers, environment),
                             .run = arguments.run,
                             .network = {},
                             .timeout_seconds = checked_timeout(arguments.timeout, "120s"),
                             .json = checked_output_path("--json", arguments.json)};
  refuse_bind_under_launcher(arguments.bind, environment);
  settings.run.elements = checked_elements(arguments.elements);
  check_range("--steps", settings.run.steps, 1, 1'000'000);
  if (!(settings.run.density > 0 && settings.run.density <= 1))
    throw ConfigError(
        fmt::format("--density is {}: it is a part of all elements, above 0 and at most 1, such as 0.05",
                    settings.run.density));
  if (arguments.network) settings.network = parse_network(*arguments.network);
  if (!arguments.backend.empty()) find_backend(arguments.backend);
  return settings;
}

std::string common_settings(const AggregateSettings& settings) {
  return fmt::format("elements {}, density {}, steps {}, exact {}, seed {}, network {}",
                     settings.run.elements, settings.run.density, settings.run.steps, settings.run.exact,
                     settings.run.seed, settings.network ? settings.network->name : "real");
}

nlohmann::ordered_json to_json(const studies::aggregation::Way& way, std::int64_t steps) {
  const Spread seconds = spread_of(way.seconds);
  return {{"bytes_sent", way.traffic.sent / steps},
          {"bytes_received", way.traffic.received / steps},
          {"step_seconds", {{"median", seconds.median}, {"p10", seconds.p10}, {"p90", seconds.p90}}}};
}

double speed_up(const studies::aggregation::RunResult& result) {
  return spread_of(result.dense.seconds).median / spread_of(result.sketch.seconds).median;
}

std::string to_json(const AggregateSettings& settings, const studies::aggregation::RunResult& result,
                    const Group& group) {
  const studies::aggregation::RunOptions& run = settings.run;
  const nlohmann::ordered_json json{{"workers", group.size() - 1},
                                    {"elements", run.elements},
                                    {"density", run.density},
                                    {"steps", run.steps},
                                    {"exact", run.exact},
                                    {"seed", run.seed},
                                    {"network", group.modelled_network()},
                                    {"backend", group.description()},
                                    {"sketch", to_json(result.sketch, run.steps)},
                                    {"dense", to_json(result.dense, run.steps)},
                                    {"throughput_ratio", speed_up(result)},
                                    {"union_keys", result.keys},
                                    {"peeling_rounds", result.peeling_rounds},
                                    {"dense_exchanges", result.dense_exchanges},
                                    {"largest_error", result.largest_error}};
  return json.dump(2) + "\n";
}

void print(const AggregateSettings& settings, const studies::aggregation::RunResult& result, int workers,
           const std::string& choice) {
  const studies::aggregation::RunOptions& run = settings.run;
  std::cout << fmt::format(
      "aggregating {} gradients of {} elements, of which {:.4g} % are not zero on some worker\n{}", workers,
      run.elements, 100 * run.density, choice);
  if (settings.network)
    std::cout
        << "Communication is real and takes the time of the modelled network, of which each worker has a "
           "link to the aggregator.\n";
  Table table({"", "sent by a worker", "received", "median step", "p10", "p90", "gradients a second"}, {});
  const auto add = [&](const std::string& name, const studies::aggregation::Way& way) {
    const Spread seconds = spread_of(way.seconds);
    table.add(
        {name, format_bytes(way.traffic.sent / run.steps), format_bytes(way.traffic.received / run.steps),
         format_seconds(seconds.median), format_seconds(seconds.p10), format_seconds(seconds.p90),
         format_bytes(static_cast<std::int64_t>(4 * static_cast<double>(run.elements) / seconds.median)) +
             "/s"});
  };
  add(run.exact ? "sketch, int64" : "sketch, fp32", result.sketch);
  add("dense, fp32", result.dense);
  std::cout << "\n"
            << table.to_string()
            << fmt::format(
                   "\nthroughput ratio {:.2f}; {} keys, peeled in at most {} rounds; dense exchanges after a "
                   "sketch: {}\nevery sum was compared on every worker: {}\n",
                   speed_up(result), result.keys, result.peeling_rounds, result.dense_exchanges,
                   run.exact ? std::string("the same bits")
                             : fmt::format("within {:.1e} of the largest", result.largest_error));
  std::cout << std::flush;
}

void run_aggregate_command(const AggregateArguments& arguments) {
  AggregateSettings settings;
  run_as_ranks(
      "dear aggregate",
      [&](const LaunchEnvironment& environment) {
        settings = check(arguments, environment);
        return Ranks{.workers = settings.workers + 1,
                     .bind = arguments.bind,
                     .group = {.timeout = std::chrono::duration<double>(settings.timeout_seconds),
                               .network = settings.network,
                               .backend = arguments.backend},
                     .settings = common_settings(settings)};
      },
      [&](const Group& group, const std::string& said) {
        const std::optional<studies::aggregation::RunResult> result =
            studies::aggregation::run(group, settings.run);
        if (group.rank() != 0) return;
        print(settings, *result, group.size() - 1, said);
        write_checked([&] {
          if (!settings.json.empty())
            write_results(settings.json, to_json(settings, *result, group),
                          {.communication = settings.network.has_value()});
        });
      });
}

}  // namespace

void add_aggregate(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "aggregate", "Add sparse gradients up in an aggregator that only adds and combines bits");
  const auto arguments = std::make_shared<AggregateArguments>();
  const OptionAdder add(*command);
  add("--workers", arguments->workers, "N",
      fmt::format("Workers on this host, 1 to {} (default 3), beside the aggregator; under a launcher, all "
                  "ranks that it started but the last",
                  kMostWorkers));
  add.with_default("--elements", arguments->elements, "N",
                   "Elements of the gradient, in fp32; K and M stand for powers of 1024");
  add.with_default(
      "--density", arguments->run.density, "PART",
      "Which part of the elements is not zero on some worker; each worker has more than half of them");
  add.with_default("--steps", arguments->run.steps, "K",
                   "Gradients that are added up, in turns as sketches and dense");
  command->add_flag("--exact", arguments->run.exact,
                    "Add in fixed point (int64), and prove that sums are the same bits as dense ones");
  add.with_default("--seed", arguments->run.seed, "N", "Of the gradients and of the sketches' hashes");
  add("--network", arguments->network, "NETWORK",
      "Model a network, as in `dear train`; default: the real one");
  add("--backend", arguments->backend, "NAME",
      "What carries messages: " + names_in(backend_table()) +
          " (default: the fastest that reaches all ranks)");
  add.with_default("--timeout", arguments->timeout, "TIME", "How long to wait for another rank");
  command->add_flag(kBindOption, arguments->bind, "Keep each rank on its part of the cores");
  add("--json", arguments->json, "FILE", "Write the results to FILE");
  command->footer(
      "The last rank is the aggregator. It stands in for a switch: it adds numbers and combines bits by or, "
      "and "
      "does not know what they mean. Each worker recovers the whole sum from what comes back. A step is as "
      "long "
      "as on the worker where it takes longest, coding included. Every sum is verified on every worker; the "
      "exit "
      "code is 1 where one is wrong.");
  command->callback([arguments] { run_aggregate_command(*arguments); });
}

}  // namespace dear::cli
