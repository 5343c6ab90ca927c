#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/systems/train_command/simulated_tuning.h"
#include "dear/systems/train_command/tuning_report.h"
#include "dear/tools/case_options/scenario.h"
#include "dear/tools/case_options/simulated_cases.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/command/tuning_table.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"

namespace dear::cli {
namespace {

struct TuneArguments {
  ScenarioOptions scenarios;
  ModelOptions model;
  std::string policy = "dear";
  train_command::SimulatedTuningOptions tuning;
  std::optional<std::string> json;
  std::optional<std::string> plot;
};

cases::Scenario one_scenario(const ScenarioOptions& options) {
  if (options.models.empty()) throw ConfigError("--model is required");
  if (options.clusters.empty()) throw ConfigError("--cluster is required");
  std::vector<cases::Scenario> all = scenarios(options);
  refuse_several("one job is tuned", all.size(), "--model, --cluster and number of --ranks");
  return std::move(all.front());
}

void print(const train_command::TuningReport& report) {
  fmt::print("{} candidates from {} to {}\n\n{}", report.sizes.candidates.size(),
             report.sizes.candidates.front().name, report.sizes.candidates.back().name, table_of(report));
  const std::size_t optimum = optimum_of(report);
  fmt::print("\nThe choice is {}: {} an iteration. The fastest of all is {}: {}, {:.1f} % less.\n",
             report.sizes.candidates[report.choice].name, format_seconds(report.true_seconds[report.choice]),
             report.sizes.candidates[optimum].name, format_seconds(report.true_seconds[optimum]),
             100 * (1 - report.true_seconds[optimum] / report.true_seconds[report.choice]));
}

void run_tune(const TuneArguments& arguments) {
  const std::string json = checked_output_path("--json", arguments.json);
  const std::string picture = checked_picture_path("--plot", arguments.plot);
  refuse_shared_outputs({{"--json", json}, {"--plot", picture}});
  train_command::SimulatedTuningOptions options = arguments.tuning;
  options.policy = &find_policy(arguments.policy);
  options.times.algorithm = arguments.model.algorithm;
  const cases::Scenario scenario = one_scenario(arguments.scenarios);
  const train_command::TuningReport report =
      train_command::tune_simulated(scenario.workload, scenario.cluster, options);
  write_checked([&] {
    if (!json.empty()) write_results(json, to_json(report), kAllModelled);
    if (!picture.empty()) charts::write_picture(picture, plot(report));
  });
  print_scenarios({scenario});
  fmt::print("\n");
  print(report);
}

}  // namespace

void add_tune_command(CLI::App& app) {
  auto arguments = std::make_shared<TuneArguments>();
  CLI::App* const command = app.add_subcommand(
      "tune", "Find the bucket size of a job by trying some: of a simulated one, or of one that trains");
  const OptionAdder add(*command);
  add_tune_training(*command);
  arguments->scenarios.add_to(*command);
  // `dear tune training` has a model and a network of its own, so these options are not required there.
  command->get_option("--model")->required(false);
  command->get_option("--cluster")->required(false);
  add.with_default("--policy", arguments->policy, "NAME", "Policy");
  arguments->model.add_algorithm_to(*command);
  train_command::SimulatedTuningOptions& tuning = arguments->tuning;
  add.with_default("--method", tuning.method, "NAME", "bayesian or grid");
  add.with_default("--trials", tuning.trials, "N", "Trials at most")->check(CLI::Range(1, 1000));
  add.with_default("--window", tuning.window, "N", "Iterations of a trial, which is their median")
      ->check(CLI::Range(1, 1000));
  add.with_default("--noise", tuning.noise, "PART",
                   "Standard deviation of an iteration, as a part of its time")
      ->check(CLI::Range(0.0, 1.0));
  add("--seed", tuning.seed, "N", "Of the noise and the wrong numbers");
  command->add_flag("--planned,!--no-planned", tuning.planned,
                    "Buckets with planned borders are a candidate beside those by size");
  command->add_flag("--prior,!--no-prior", tuning.prior,
                    "Begin with what a simulation expects that was told wrong numbers");
  add.with_default("--prior-error", tuning.prior_error, "PART",
                   "How wrong they are: each start-up, bandwidth and layer's time by up to this part")
      ->check(CLI::Range(0.0, 10.0));
  add("--json", arguments->json, "FILE", "Write trials and choice to FILE");
  add("--plot", arguments->plot, "FILE",
      "Draw trials and what is expected of the rest, as SVG, PDF or PNG by its ending");
  command->callback([arguments, command] {
    if (command->get_subcommands().empty()) run_tune(*arguments);
  });
}

}  // namespace dear::cli
