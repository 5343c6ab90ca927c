#include "dear/cli/simulate_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/atomic_file.h"
#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/cli/table.h"
#include "dear/cluster/network.h"
#include "dear/cost/collective_times.h"
#include "dear/fusion/grouping.h"
#include "dear/schedule/policy/policy.h"
#include "dear/sim/simulate.h"
#include "dear/trace/chrome.h"
#include "dear/workload/workload_file.h"

namespace dear::cli {
namespace {

struct SimulateArguments {
  std::string model;
  std::vector<std::string> networks;
  std::vector<int> ranks;
  std::vector<std::string> policies{"serial", "wfbp", "dear"};
  std::string fusion = "25MiB";
  std::int64_t iterations = 32;
  std::string json;
  std::string trace;
};

struct Case {
  const Policy* policy;
  Network network;
  int ranks;
  sim::Result result;
};

// Policies run innermost: those of one network and number of ranks stand together.
std::vector<Case> simulate_all(const SimulateArguments& arguments, const Workload& workload,
                               const Grouping& grouping) {
  std::vector<const Policy*> chosen;
  for (const std::string& name : arguments.policies) {
    chosen.push_back(&find_policy(name));
  }
  std::vector<Case> cases;
  for (const std::string& text : arguments.networks) {
    const Network network = parse_network(text);
    for (const int ranks : arguments.ranks) {
      for (const Policy* policy : chosen) {
        const Schedule schedule =
            make_schedule(*policy, workload, grouping, cost::ring_times(network.link, ranks));
        cases.push_back({policy, network, ranks,
                         sim::simulate(schedule, workload, grouping, network.link,
                                       {.ranks = ranks, .iterations = arguments.iterations})});
      }
    }
  }
  return cases;
}

std::string quotient(double a, double b, int digits) {
  return b > 0 ? fmt::format("{:.{}f}", a / b, digits) : "-";
}

void print_table(const std::vector<Case>& cases, std::size_t policies) {
  Table table({"policy", "network", "ranks", "iteration", "compute", "exposed comm.", "bound",
               "ratio to bound", "speed-up"},
              {.left_columns = 2});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [policy, network, ranks, result] = cases[i];
    const double first = cases[i - i % policies].result.iteration_seconds;
    table.add({std::string(policy->name), network.name, std::to_string(ranks),
               format_seconds(result.iteration_seconds), format_seconds(result.compute_seconds),
               format_seconds(result.exposed_communication_seconds), format_seconds(result.bound_seconds),
               quotient(result.iteration_seconds, result.bound_seconds, 3),
               quotient(first, result.iteration_seconds, 2)});
  }
  fmt::print("{}", table.to_string());
}

nlohmann::ordered_json to_json(const std::vector<Case>& cases, const Workload& workload,
                               const std::string& fusion) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [policy, network, ranks, result] : cases) {
    list.push_back({{"model", workload.name},
                    {"cluster", network.name},
                    {"ranks", ranks},
                    {"policy", policy->name},
                    {"fusion", fusion},
                    {"iteration_seconds", result.iteration_seconds},
                    {"compute_seconds", result.compute_seconds},
                    {"exposed_communication_seconds", result.exposed_communication_seconds},
                    {"bound_seconds", result.bound_seconds}});
  }
  return list;
}

void run_simulate(const SimulateArguments& arguments) {
  const Workload workload = read_workload(arguments.model);
  const Fusion fusion = Fusion::parse(arguments.fusion);
  const Grouping grouping = fusion(workload);
  const std::vector<Case> cases = simulate_all(arguments, workload, grouping);
  if (!arguments.trace.empty() && cases.size() != 1) {
    throw ConfigError(fmt::format(
        "--trace writes one simulation and {} were asked for: give one --policy, --network and --ranks",
        cases.size()));
  }

  if (!arguments.json.empty()) {
    write_file_atomically(arguments.json, to_json(cases, workload, fusion.text()).dump(2) + "\n");
  }
  if (!arguments.trace.empty()) {
    const auto& [policy, network, ranks, result] = cases.front();
    const Schedule schedule =
        make_schedule(*policy, workload, grouping, cost::ring_times(network.link, ranks));
    write_chrome_trace(sim::to_trace(schedule, workload, result, network, ranks), arguments.trace);
  }

  fmt::print("{}: {} layers, {} of parameters, {} {} (fusion {})\n", workload.name, workload.layers.size(),
             format_bytes(workload.bytes()), grouping.size(), grouping.size() == 1 ? "bucket" : "buckets",
             fusion.text());
  fmt::print("Everything below is modelled: no computation and no communication took place.\n\n");
  print_table(cases, arguments.policies.size());
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  auto arguments = std::make_shared<SimulateArguments>();
  CLI::App* const command =
      app.add_subcommand("simulate", "Predict iteration times of policies on a modelled network");
  command->add_option("--model", arguments->model, "Workload file, as `dear train --profile FILE` writes it")
      ->required()
      ->type_name("FILE");
  command
      ->add_option(
          "--network", arguments->networks,
          "1gbit, 10gbe, 100gbib, bandwidth=1gbit,latency=50us, or a cluster file as `dear bench collective "
          "--cluster FILE` writes it; give the option again for a further one")
      ->required()
      ->allow_extra_args(false)
      ->type_name("NET");
  command->add_option("--ranks", arguments->ranks, "Ranks of the job, or several numbers: 4,16,64")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N[,N...]");
  command->add_option("--policy", arguments->policies, "Policies; speed-ups are over the first")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME[,NAME...]")
      ->default_str("serial,wfbp,dear");
  command->add_option("--fusion", arguments->fusion, "How tensors are grouped: a size, layer, or all")
      ->type_name("SPEC")
      ->capture_default_str();
  command
      ->add_option("--iterations", arguments->iterations, "Iterations to simulate; the first half warms up")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1'000'000}))
      ->type_name("K")
      ->capture_default_str();
  command->add_option("--json", arguments->json, "Write the results to FILE")->type_name("FILE");
  command
      ->add_option("--trace", arguments->trace,
                   "Write a timeline for https://ui.perfetto.dev (one simulation only)")
      ->type_name("FILE");
  command->callback([arguments] { run_simulate(*arguments); });
}

}  // namespace dear::cli
