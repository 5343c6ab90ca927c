#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/launch/launcher.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/backends/backends.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/command/train_report.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/run_as_ranks.h"
#include "dear/tools/rounds_command/rounds_options.h"
#include "dear/tools/rounds_command/rounds_report.h"

namespace dear::cli {
namespace {

using rounds_command::RoundsOptions;
using rounds_command::RoundsReport;
using rounds_command::RoundsRun;
using rounds_command::RoundsSettings;

RoundsRun run_algorithm(const RoundsSettings& settings, const methods::rounds::Settings& algorithm,
                        const std::vector<double>& optimum, const Group& group) {
  const bool shows = group.rank() == 0 && ::isatty(STDERR_FILENO) != 0;
  const auto begin = std::chrono::steady_clock::now();
  methods::rounds::Rounds rounds(group, *settings.problem, algorithm);
  RoundsRun run{.settings = algorithm, .outcome = {}};
  run.outcome = run_to(rounds, optimum, settings.target, [&](const methods::rounds::Milestone& milestone) {
    if (shows)
      fmt::print(stderr, "\r\033[K{}: round {}, error {:.1e} ", algorithm.algorithm->name,
                 milestone.counts.rounds, milestone.error);
  });
  if (shows) fmt::print(stderr, "\r\033[K");
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (settings.auc != nullptr) run.auc = settings.auc->auc_of(rounds.model());
  return run;
}

void run_rank(const RoundsSettings& settings, const Group& group, const std::string& said) {
  const std::vector<double> optimum = settings.problem->optimum();
  RoundsReport report{.problem = settings.described,
                      .clients = settings.problem->clients(),
                      .dimension = settings.problem->dimension(),
                      .runs = {},
                      .alpha = settings.alpha,
                      .seed = settings.seed,
                      .ranks = group.size(),
                      .description = group.description(),
                      .modelled_network = group.modelled_network()};
  if (settings.auc != nullptr) report.best_auc = settings.auc->auc_of(optimum);
  for (const methods::rounds::Settings& algorithm : settings.algorithms)
    report.runs.push_back(run_algorithm(settings, algorithm, optimum, group));
  if (group.rank() != 0) return;
  fmt::print("{}{}, drawn with seed {}, on {}\n\n{}{}", said, report.problem, report.seed,
             counted(index_of(report.ranks), "rank"), to_text(report),
             report.ranks == 1 ? "" : network_line(report.modelled_network, report.description));
  write_checked([&] {
    if (!settings.json.empty())
      write_results(settings.json, to_json(report), {.communication = !report.modelled_network.empty()});
    if (!settings.plot.empty()) charts::write_picture(settings.plot, plot_of(report));
  });
}

void run_rounds(const RoundsOptions& options) {
  RoundsSettings settings;
  run_as_ranks(
      "dear rounds run",
      [&](const LaunchEnvironment& environment) {
        settings = check(options, environment);
        std::string described = settings.described;
        for (const methods::rounds::Settings& algorithm : settings.algorithms)
          described += "; " + describe(algorithm);
        return Ranks{.workers = settings.workers,
                     .group = {.timeout = std::chrono::duration<double>(settings.timeout_seconds),
                               .network = settings.network,
                               .backend = settings.backend},
                     .settings = fmt::format("{}, seed {}, error {}, rounds {}, network {}", described,
                                             settings.seed, settings.target.error, settings.target.rounds,
                                             settings.network ? name_of(*settings.network) : "real")};
      },
      [&](const Group& group, const std::string& said) { run_rank(settings, group, said); });
}

void add_problem_to(const OptionAdder& add, RoundsOptions& options) {
  add.with_default(
      "--problem", options.problem, "NAME",
      "Drawn, with known constants: logistic (regression with a ridge), quadratic, or auc (the area under "
      "the ROC curve of a linear score)");
  add("--clients", options.clients, "N", "Default: logistic 100, quadratic 10, auc 4");
  add("--dimension", options.dimension, "N", "Of a point; default: logistic 300, quadratic 12, auc 10");
  add("--condition", options.condition, "K", "L / mu of logistic (default 10,000) and quadratic (50)");
  add("--heterogeneity", options.heterogeneity, "X",
      "How far clients' own models lie from the common one, of logistic and quadratic")
      ->default_str("1");
  add("--rows", options.rows, "N", "Samples of a client; default: logistic 3, auc 500");
  add("--nonzeros", options.nonzeros, "N", "Features of a row of logistic, at most half the dimension")
      ->default_str("12");
  add("--positive", options.positive, "P", "Share of positive samples of auc")->default_str("0.1");
  add("--separation", options.separation, "X", "Distance of the means of the classes of auc")
      ->default_str("1");
  add("--shards", options.shards, "NAME", "Of auc: alike, or sorted by a feature, so that clients differ")
      ->default_str("alike");
}

void add_algorithms_to(CLI::App& command, const OptionAdder& add, RoundsOptions& options) {
  add.list("--algorithm", options.algorithms, "NAME[,NAME...]",
           names_in(methods::rounds::algorithms()) +
               " (default: gd,scaffnew,compressed-scaffnew,tamuna; for auc coda,codasca)");
  add("--cohort", options.cohort, "N", "Clients of a round, for algorithms that draw them (default: all)");
  add.list("--owners", options.owners, "N[,N...]",
           "Clients that send a coordinate, for compressed-scaffnew and tamuna, a run for each (default: by "
           "theory)");
  add.list(
      "--local-steps", options.local_steps, "N[,N...]",
      "Of a round: the number, or its mean where it is random, a run for each (default: by theory, coda 8)");
  add("--gamma", options.gamma, "X", "Step size (default: by theory; coda 0.1, of the first stage)");
  add("--chi", options.chi, "X", "Step size of control variates (default: the largest of theory)");
  command.add_flag("--force", options.force, "Take a gamma or chi with which an algorithm may diverge");
  add("--batch", options.batch, "N", "Samples of a gradient, drawn anew each time (default: all)");
  add("--stages", options.stages, "N", "Of coda and codasca")->default_str("4");
  add("--stage-steps", options.stage_steps, "N", "Local steps of a stage")->default_str("4000");
  add("--shrink", options.shrink, "X", "The step size of a stage, divided by that of the next")
      ->default_str("3");
  add("--proximal", options.proximal, "X", "The weight of the distance to the stage's point is 1 / (2 X)")
      ->default_str("500");
  add.with_default("--absence", options.absence, "P",
                   "Probability that a client that was drawn does not answer: the next takes its place");
  add.with_default(
      "--alpha", options.alpha, "X",
      "What a real sent down costs, where one sent up costs 1; counts for owners and for what is fewer");
}

void add_run(CLI::App& parent) {
  CLI::App* const command =
      parent.add_subcommand("run", "Find the optimum of a known problem by rounds, and count what is sent");
  const auto options = std::make_shared<RoundsOptions>();
  const OptionAdder add(*command);
  add_problem_to(add, *options);
  add_algorithms_to(*command, add, *options);
  add.with_default("--seed", options->seed, "N", "Draws the problem, cohorts, masks and numbers of steps");
  add("--error", options->error, "X",
      "Ends a run whose squared distance to the optimum is so small, beside that of the start")
      ->default_str("1e-8");
  add.with_default("--rounds", options->rounds, "N", "Ends a run, too");
  add("--workers", options->workers, "N",
      "Ranks on this host that clients are dealt to (default 1); under a launcher, those that it started")
      ->check(CLI::Range(1, launch::kMostRanks));
  add("--backend", options->backend, "NAME",
      "What carries the group: " + names_in(backend_table()) +
          " (default: the fastest that reaches all ranks)");
  add("--network", options->network, "NETWORK", "Model a network, as in `dear train`; default: the real one");
  add("--json", options->json, "FILE", "Write the results, with errors on the way, to FILE");
  add("--plot", options->plot, "FILE", "Draw errors against reals sent, as SVG, PDF or PNG by its ending");
  add.with_default("--timeout", options->timeout, "TIME", "How long to wait for another rank");
  command->footer(
      "The result is the same bits on any number of ranks. A run also ends where it stalls, as averages of\n"
      "local steps do, and where it diverges.\n"
      "On several hosts: mpirun -n 8 dear rounds run --json rounds.json");
  command->callback([options] { run_rounds(*options); });
}

}  // namespace

void add_rounds_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("rounds", "Train by rounds: local steps, and an average now and then")
          ->require_subcommand(1);
  add_run(*command);
}

}  // namespace dear::cli
