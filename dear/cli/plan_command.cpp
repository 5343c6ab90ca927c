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
#include "dear/cli/commands.h"
#include "dear/cli/option_checks.h"
#include "dear/cli/scenario.h"
#include "dear/cli/simulated_cases.h"
#include "dear/cli/table.h"
#include "dear/plan/plan.h"
#include "dear/schedule/schedule_file.h"

namespace dear::cli {
namespace {

struct PlanArguments {
  ScenarioOptions scenarios;
  std::vector<std::string> policies;
  ModelOptions model;
  std::string json;
  std::string schedule;
};

void print(const plan::Answer& answer) {
  Table table({"policy", "fusion", "collectives", "buckets", "iteration", "exposed comm.", "bound", "memory"},
              {.left_columns = 3});
  for (const plan::Row& row : answer.rows) {
    const sim::Evaluation& evaluation = row.evaluation;
    table.add({std::string(row.policy->name), row.fusion, row.algorithm, std::to_string(row.grouping.size()),
               format_seconds(evaluation.iteration.seconds),
               format_seconds(evaluation.exposed_communication_seconds),
               format_seconds(evaluation.bound_seconds),
               format_bytes(evaluation.memory.total()) + (row.fits ? "" : ", too much")});
  }
  fmt::print("{}\n", table.to_string());
  Table reasons({"policy", "what it waits for"}, {.left_columns = 2});
  for (const plan::Row& row : answer.rows) reasons.add({std::string(row.policy->name), row.why});
  fmt::print("{}\n", reasons.to_string());
  for (const std::string& sentence : answer.verdict) fmt::print("{}\n", sentence);
  fmt::print("\nWith {} as it is, and\n", answer.rows[answer.best].policy->name);
  for (const plan::Sensitivity& change : answer.sensitivities)
    fmt::print("  {:<24} {:>9} an iteration, {:.2f} times the samples a second\n", change.change + ":",
               format_seconds(change.iteration_seconds), change.speed_up);
}

nlohmann::ordered_json to_json(const plan::Answer& answer, const study::Scenario& scenario) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const plan::Row& row : answer.rows) {
    const sim::Evaluation& evaluation = row.evaluation;
    rows.push_back({{"policy", row.policy->name},
                    {"fusion", row.fusion},
                    {"algorithm", row.algorithm},
                    {"buckets", row.grouping.size()},
                    {"iteration_seconds", evaluation.iteration.seconds},
                    {"compute_seconds", row.breakdown.compute},
                    {"overlap_seconds", row.breakdown.overlap},
                    {"fusion_seconds", row.breakdown.fusion},
                    {"start_up_seconds", row.breakdown.start_up},
                    {"interference_seconds", row.breakdown.interference},
                    {"bound_seconds", evaluation.bound_seconds},
                    {"memory_bytes", evaluation.memory.total()},
                    {"fits", row.fits},
                    {"why", row.why}});
  }
  nlohmann::ordered_json changes = nlohmann::ordered_json::array();
  for (const plan::Sensitivity& change : answer.sensitivities)
    changes.push_back({{"change", change.change},
                       {"iteration_seconds", change.iteration_seconds},
                       {"speed_up", change.speed_up}});
  return {{"model", scenario.workload.name},   {"cluster", scenario.cluster.name},
          {"ranks", scenario.cluster.ranks()}, {"floor_seconds", answer.floor_seconds},
          {"rows", std::move(rows)},           {"sensitivities", std::move(changes)},
          {"verdict", answer.verdict}};
}

void write_schedule(const plan::Row& row, const study::Scenario& scenario, const std::string& path) {
  if (!row.fits)
    throw ConfigError(fmt::format("no schedule is written to '{}': nothing fits into the {} of a rank", path,
                                  format_bytes(scenario.memory_bytes)));
  write_schedule_file({.model = scenario.workload.name,
                       .cluster = scenario.cluster.name,
                       .ranks = scenario.cluster.ranks(),
                       .policy = std::string(row.policy->name),
                       .buckets = names_in(scenario.workload, row.grouping)},
                      path);
  fmt::print("\nschedule of {}: {} (for --schedule of {}dear simulate)\n", row.policy->name, path,
             row.policy->trains ? "dear train and " : "");
}

void run_plan(const PlanArguments& arguments) {
  plan::Options options{.policies = {},
                        .evaluate = {.optimizer_states = arguments.model.optimizer_states},
                        .times = {.algorithm = arguments.model.algorithm}};
  for (const std::string& name : arguments.policies) options.policies.push_back(&find_policy(name));
  const std::vector<study::Scenario> all = scenarios(arguments.scenarios);
  if (!arguments.schedule.empty())
    refuse_several("--schedule writes one schedule", all.size(), "--model, --cluster and number of --ranks");
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  print_scenarios(all);
  for (const study::Scenario& scenario : all) {
    options.memory_bytes = scenario.memory_bytes;
    const plan::Answer answer = plan::plan(scenario.workload, scenario.cluster, options);
    fmt::print("\n{} on {}, {} ranks\n\n", scenario.workload.name, scenario.cluster.name,
               scenario.cluster.ranks());
    print(answer);
    if (!arguments.schedule.empty()) write_schedule(answer.rows[answer.best], scenario, arguments.schedule);
    list.push_back(to_json(answer, scenario));
  }
  if (!arguments.json.empty()) write_file_atomically(arguments.json, list.dump(2) + "\n");
}

}  // namespace

void add_plan_command(CLI::App& app) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* const command =
      app.add_subcommand("plan", "Find the policy, buckets and collectives for a model on a cluster");
  arguments->scenarios.add_to(*command);
  command->add_option("--policy", arguments->policies, "Policies to choose from; default: all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME[,NAME...]");
  arguments->model.add_to(*command);
  command->add_option("--json", arguments->json, "Write the answer to FILE")->type_name("FILE");
  command
      ->add_option(
          "--schedule", arguments->schedule,
          "Write the policy and the buckets to use to FILE, for --schedule of train and simulate (one "
          "model on one cluster only)")
      ->type_name("FILE");
  command->callback([arguments] { run_plan(*arguments); });
}

}  // namespace dear::cli
