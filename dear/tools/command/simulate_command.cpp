#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/trace/chrome.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/predict/sim/simulate.h"
#include "dear/tools/case_options/kfac_policies.h"
#include "dear/tools/case_options/mixture_options.h"
#include "dear/tools/case_options/policy_options.h"
#include "dear/tools/case_options/scenario.h"
#include "dear/tools/case_options/simulated_cases.h"
#include "dear/tools/cases/rounds_cases.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"

namespace dear::cli {
namespace {

struct SimulateArguments {
  ScenarioOptions scenarios;
  PolicyOptions policies;
  KfacPolicyOptions kfac;
  MixtureOptions mixtures;
  std::string detail = "closed-form";
  std::string placement = "spread";
  ModelOptions model;
  sim::EvaluateOptions evaluate;
  std::vector<std::int64_t> rounds;  // steps of each; none: no rounds
  std::string json;
  std::string trace;
  std::string plot;
};

void refuse_beside_rounds(const CLI::App& command, const std::vector<std::int64_t>& rounds) {
  if (rounds.empty()) return;
  for (const std::int64_t steps : rounds) check_range("--rounds", steps, 1, 1'000'000'000);
  refuse_beside("--rounds, whose times are in closed form,", command,
                {"--detail", "--jobs", "--jitter", "--repetitions"});
}

// Refuses options that change nothing of a simulation with K-FAC.
void refuse_without_effect(const CLI::App& command, const SimulateArguments& arguments) {
  if (arguments.detail != "closed-form") refuse_beside("K-FAC", command, {"--detail"});
  if (arguments.scenarios.jobs != 1) refuse_beside("K-FAC", command, {"--jobs"});
  refuse_beside("K-FAC", command,
                {"--placement", "--iterations", "--jitter", "--repetitions", "--seed", "--schedule",
                 "--optimizer-states", "--accumulate", "--scale-compute", "--checkpoint-activations",
                 "--compress", "--codec", "--union-density", "--rounds"});
  if (arguments.policies.fusion == "usual" || arguments.policies.fusion == "planned")
    throw ConfigError(fmt::format(
        "--fusion {} is not modelled with K-FAC: give the size of gradients' buckets, layer, or all",
        *arguments.policies.fusion));
}

// Writes cases with K-FAC, with mixtures of experts, or others.
template <typename Cases, typename... Rounds>
void write_outputs(const SimulateArguments& arguments, const Cases& cases, const std::string& title,
                   const Rounds&... rounds) {
  write_checked([&] {
    if (!arguments.json.empty())
      write_results(arguments.json, cases::to_json(cases, rounds...), kAllModelled);
    if (!arguments.plot.empty()) charts::write_picture(arguments.plot, cases::plot(cases, title));
    if (!arguments.trace.empty()) write_chrome_trace(cases::trace_of(cases.back()), arguments.trace);
  });
}

// The K-FAC policies of the options, in a table of their own.
void run_kfac(const SimulateArguments& arguments, const std::vector<std::string>& policies) {
  cases::KfacNames names = arguments.kfac.names(policies);
  names.algorithm = arguments.model.algorithm;
  names.fusion = arguments.policies.fusion.value_or(names.fusion);
  const cases::KfacOptions options = cases::find_options(names);
  const std::vector<cases::Scenario> all = scenarios(arguments.scenarios);
  if (!arguments.trace.empty())
    refuse_several("--trace writes one simulation", all.size() * policies.size(),
                   "--model, --cluster, --policy and number of --ranks");
  const std::vector<cases::KfacCase> cases = cases::simulate(all, options);
  write_outputs(arguments, cases, "Iteration times with K-FAC, simulated");
  print_scenarios(all);
  fmt::print("{}\n{}", left_out_of(cases), table_of(cases, policies.size()));
}

// Models with mixtures of experts by the overlaps of the options, in a table of their own.
void run_mixtures(const SimulateArguments& arguments) {
  const cases::MixtureNames names = arguments.mixtures.names();
  const cases::Overlaps overlaps = cases::find_overlaps(names);
  const std::vector<cases::MixtureScenario> all =
      cases::mixture_scenarios(asked_by(arguments.scenarios), names);
  if (!arguments.trace.empty())
    refuse_several("--trace writes one simulation", all.size() * overlaps.size(),
                   "--model, --cluster, --overlap and number of --ranks");
  const std::vector<cases::MixtureCase> cases = cases::simulate(all, overlaps);
  write_outputs(arguments, cases, "Iteration times with mixtures of experts, simulated");
  print_scenarios(all);
  fmt::print("\n{}", table_of(cases));
}

// Nothing of one bucket overlaps, whatever the policy, but a user who reads the table may blame the policy.
void hint_at_one_bucket(const std::vector<cases::Case>& cases) {
  const auto found = std::find_if(cases.begin(), cases.end(), [](const cases::Case& one) {
    return one.grouping.size() == 1 && one.scenario->workload.layers.size() > 1 &&
           one.policy->name != "serial";
  });
  if (found != cases.end())
    fmt::print(
        "\nAll gradients of {} are in one bucket, of which nothing can overlap: `--fusion planned` cuts "
        "it.\n",
        found->scenario->workload.name);
}

void run_simulate(const CLI::App& command, SimulateArguments& arguments) {
  check_outputs({{"--json", arguments.json}, {"--trace", arguments.trace}, {"--plot", arguments.plot}});
  if (are_mixtures(arguments.scenarios.models, arguments.mixtures)) {
    refuse_beside_mixtures(command);
    refuse_beside("mixtures of experts", command, {"--rounds"});
    run_mixtures(arguments);
    return;
  }
  arguments.scenarios.model.optimizer_states = arguments.model.optimizer_states;
  const auto [kfac, others] = divide(arguments.policies.policies);
  arguments.kfac.require_kfac(kfac);
  if (!kfac.empty()) {
    if (!others.empty())
      throw ConfigError(
          fmt::format("--policy {} is not K-FAC, whose iterations have other parts: simulate it by itself, "
                      "or see both with "
                      "`dear plan --optimizer kfac`",
                      others.front()));
    refuse_without_effect(command, arguments);
    run_kfac(arguments, kfac);
    return;
  }
  refuse_beside_rounds(command, arguments.rounds);
  const PolicyChoice choice = choose_policies(arguments.policies);
  sim::EvaluateOptions evaluate = arguments.evaluate;
  evaluate.optimizer_states = arguments.model.optimizer_states;
  evaluate.micro_batches = arguments.model.micro_batches;
  const cases::CaseOptions options =
      cases::find_options({.policies = choice.policies,
                           .fusion = arguments.policies.fusion.value_or("usual"),
                           .buckets = choice.buckets,
                           .algorithm = arguments.model.algorithm,
                           .detail = arguments.detail,
                           .jobs = arguments.scenarios.jobs,
                           .placement = arguments.placement,
                           .compression = arguments.model.compression},
                          evaluate);
  const std::vector<cases::Scenario> all = scenarios(arguments.scenarios);
  const std::size_t ways = 1 + arguments.model.compression.compressions.size();
  if (!arguments.trace.empty())
    refuse_several("--trace writes one simulation, with the compression if there is one",
                   all.size() * options.policies.size() * std::max<std::size_t>(1, ways - 1),
                   "--model, --cluster, --policy, --compress and number of --ranks");
  const std::vector<cases::Case> cases = cases::simulate(all, options);

  const std::vector<cases::RoundsCase> rounds = cases::rounds_beside(cases, arguments.rounds);
  write_outputs(arguments, cases, "Iteration times, simulated", rounds);
  print_scenarios(all);
  print_codecs(cases);
  fmt::print("\n{}", table_of(cases, options.policies.size() * ways));
  hint_at_one_bucket(cases);
  if (!rounds.empty()) fmt::print("\n{}", table_of(rounds));
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  auto arguments = std::make_shared<SimulateArguments>();
  CLI::App* const command =
      app.add_subcommand("simulate", "Predict iteration times of policies on a modelled cluster");
  const OptionAdder add(*command);
  arguments->scenarios.add_to(*command);
  arguments->policies.add_to(*command,
                             "How tensors are grouped: usual (as each policy's own system does), planned "
                             "(the best borders), a size, layer, or all",
                             "usual");
  arguments->kfac.add_to(*command);
  arguments->mixtures.add_overlap_to(*command);
  arguments->mixtures.add_to(*command);
  arguments->model.add_to(*command);
  add.with_default(
      "--detail", arguments->detail, "NAME",
      "closed-form, flows (bytes of each rank share links), or blocks (every message of a ring, or of "
      "what --algorithm names: halving-doubling, pairwise, bruck, one for each dimension as in "
      "hierarchical:ring,halving-doubling, or themis)");
  add.with_default("--jobs", arguments->scenarios.jobs, "N",
                   "Equal jobs that share the cluster's links, each of --ranks ranks; with flows or blocks")
      ->check(CLI::Range(1, 1024));
  add.with_default(
      "--placement", arguments->placement, "NAME",
      "Of several jobs: spread (ranks dealt out one by one, so that jobs share nodes), or packed "
      "(each on neighbouring ranks)");
  add.with_default("--iterations", arguments->evaluate.iterations, "K",
                   "Iterations to simulate; the first half warms up")
      ->check(CLI::Range(std::int64_t{4}, std::int64_t{1'000'000}));
  add("--jitter", arguments->evaluate.jitter, "PART",
      "Standard deviation of every step of every rank, as a part of its time: 0.05")
      ->check(CLI::Range(0.0, 1.0));
  add("--repetitions", arguments->evaluate.repetitions, "N",
      "Repetitions with jitter of their own, for a confidence interval of 95 %")
      ->check(CLI::Range(1, 10'000));
  add("--seed", arguments->evaluate.seed, "N", "Of the jitter");
  add.list("--rounds", arguments->rounds, "N[,N...]",
           "Also rounds of so many steps, after which parameters are averaged, beside the fastest policy");
  add("--json", arguments->json, "FILE", "Write the results to FILE");
  add("--plot", arguments->plot, "FILE", "Draw the results, as SVG, PDF or PNG by its ending");
  add("--trace", arguments->trace, "FILE",
      "Write a timeline for https://ui.perfetto.dev (one simulation only)");
  // With a subcommand nothing of the command's own is needed.
  CLI::App* const collective = add_simulate_collective(*command);
  collective->preparse_callback([command](std::size_t) {
    for (CLI::Option* const option : command->get_options()) option->required(false);
  });
  command->callback([arguments, collective, command] {
    if (!collective->parsed()) run_simulate(*command, *arguments);
  });
}

}  // namespace dear::cli
