#include <cstdio>
#include <memory>
#include <string>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/units.h"
#include "dear/methods/edge/aggregators.h"
#include "dear/methods/edge/gossip.h"
#include "dear/methods/edge/ofdma.h"
#include "dear/methods/edge/schedulers.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/command/edge_live.h"
#include "dear/tools/edge_command/edge_options.h"
#include "dear/tools/edge_command/edge_report.h"
#include "dear/tools/edge_command/plan_report.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"

namespace dear::cli {
namespace {

using edge_command::CellOptions;
using edge_command::EdgeReport;
using edge_command::PlanOptions;
using edge_command::PlanReport;
using edge_command::RunOptions;

void add_cell_to(const OptionAdder& add, CellOptions& cell) {
  add.with_default("--bandwidth", cell.bandwidth, "HERTZ", "Of the cell, up and down each");
  add.with_default("--power", cell.power, "POWER", "Of a device, as 20dBm or 0.1W");
  add.with_default("--base-power", cell.down_power, "POWER", "Of the base station");
  add.with_default("--noise", cell.noise, "POWER", "In one hertz");
  add.with_default("--nearest", cell.nearest_m, "METRES", "The least distance from the base station");
  add.with_default("--farthest", cell.farthest_m, "METRES",
                   "The largest, also of what is drawn between them");
  add.with_default("--path-loss", cell.path_loss, "NAME",
                   names_in(methods::edge::path_losses()) + "; Rayleigh fading comes on top");
}

void run_plan(const PlanOptions& options) {
  check_outputs({{"--json", options.json}, {"--output", options.output}});
  const edge_command::PlanSettings settings = check(options);
  PlanReport report{.problem = settings.described, .groups = settings.file.problem, .plans = {}};
  for (const std::string& scheme : settings.schemes)
    report.plans.push_back(parse_option(fmt::format("--scheme {}", scheme), [&] {
      return solve_paba(report.groups, scheme,
                        scheme == settings.schemes.back() ? settings.file.deadline_seconds : 0);
    }));
  write_checked([&] {
    if (!options.json.empty()) write_results(options.json, to_json(report), kAllModelled);
    if (!options.output.empty()) os::write_file_atomically(options.output, groups_json(report.groups));
  });
  fmt::print("{}: {} parameters of {:g} bits, {:g} MHz down and {:g} MHz up\n\n{}", report.problem,
             report.groups.parameters, report.groups.bits_per_parameter,
             report.groups.bandwidth_down_hz / 1e6, report.groups.bandwidth_up_hz / 1e6, to_text(report));
}

}  // namespace

std::vector<CLI::Option*> add_groups_to(const OptionAdder& add, PlanOptions& options) {
  std::vector<CLI::Option*> draws{
      add.with_default("--groups", options.groups, "N",
                       "Drawn in a cell; each has a block of the parameters"),
      add.with_default("--workers", options.workers, "N", "Of a group; each has a part of the samples"),
      add.with_default("--parameters", options.parameters, "N", "Of the model"),
      add.with_default("--bits", options.bits, "N", "Of a parameter that travels"),
      add.with_default("--cycles", options.cycles, "N", "Of the gradient of a parameter on all samples"),
      add.with_default("--slowest", options.slowest, "HERTZ", "Of a processor"),
      add.with_default("--fastest", options.fastest, "HERTZ",
                       "Of a processor, also of what is drawn between them"),
      add.with_default("--seed", options.seed, "N", "Draws places, fading and processors")};
  add_cell_to(add, options.cell);
  return draws;
}

namespace {

void add_plan(CLI::App& parent) {
  CLI::App* const command =
      parent.add_subcommand("plan", "Share parameters and bandwidth among groups of workers, with a proof");
  const auto options = std::make_shared<PlanOptions>();
  const OptionAdder add(*command);
  add("FILE", options->file, "FILE",
      "Groups of workers as JSON (docs/formats.md); without it groups are drawn");
  add.list("--scheme", options->schemes, "NAME[,NAME...]",
           names_in(methods::edge::paba_schemes()) + " (default: all)");
  add("--deadline", options->deadline, "TIME", "Refuse a last plan whose iteration takes longer");
  const std::vector<CLI::Option*> draws = add_groups_to(add, *options);
  add("--json", options->json, "FILE", "Write plans and their certificates to FILE");
  add("--output", options->output, "FILE", "Write the groups as a file that this command reads");
  command->footer(
      "It follows PARTEL (arXiv 2003.04544). What is drawn is this project's choice, not the paper's.");
  command->callback([options, draws] {
    for (const CLI::Option* const option : draws) options->draws = options->draws || option->count() > 0;
    run_plan(*options);
  });
}

void run_run(const RunOptions& options) {
  check_outputs({{"--csv", options.csv}, {"--json", options.json}, {"--plot", options.plot}});
  const edge_command::RunSettings settings = check(options);
  const methods::edge::Classification task(settings.shape);
  EdgeReport report{.problem = settings.described, .runs = {}, .seed = options.seed};
  const bool shows = ::isatty(STDERR_FILENO) != 0;
  for (const methods::edge::EdgeSettings& one : settings.runs) {
    report.runs.push_back({.settings = one, .rounds = {}});
    report.runs.back().rounds = run_edge(one, task, [&](const methods::edge::EdgeRound& round) {
      if (shows)
        fmt::print(stderr, "\r\033[K{}, {}: round {}, accuracy {:.3f} ", one.scheduler, one.aggregator,
                   round.number, round.accuracy);
    });
    if (shows) fmt::print(stderr, "\r\033[K");
  }
  write_checked([&] {
    if (!options.csv.empty()) os::write_file_atomically(options.csv, to_csv(report));
    if (!options.json.empty()) write_results(options.json, to_json(report), kAllModelled);
    if (!options.plot.empty()) charts::write_picture(options.plot, plot_of(report));
  });
  fmt::print("{}, drawn with seed {}\n\n{}", report.problem, report.seed, to_text(report));
}

// Returns the option that is of drawn devices alone.
CLI::Option* add_task_to(const OptionAdder& add, RunOptions& options) {
  add.with_default("--model", options.model, "NAME",
                   "logistic (softmax regression) or mlp (one hidden layer)");
  CLI::Option* const devices = add.with_default("--devices", options.devices, "N", "That learn");
  add.with_default("--split", options.split, "NAME",
                   "Of samples: iid, or sorted by class, so that a device has two classes");
  add.with_default("--samples", options.samples, "N", "Of a device");
  add.with_default("--classes", options.classes, "N", "Of samples");
  add.with_default("--features", options.features, "N", "Of a sample");
  add.with_default("--separation", options.separation, "X", "How far classes lie apart, beside their noise");
  add.with_default("--hidden", options.hidden, "N", "Units of mlp");
  add.with_default("--local-steps", options.local_steps, "N", "Of a device in a round");
  add.with_default("--batch", options.batch, "N", "Samples of a step, 0 for all");
  add.with_default("--step-size", options.step_size, "X", "Of a local step");
  return devices;
}

void add_policies_to(const OptionAdder& add, RunOptions& options) {
  add.list("--scheduler", options.schedulers, "NAME[,NAME...]",
           names_in(methods::edge::schedulers()) + ", " + names_in(methods::edge::joint_schedulers()) +
               " (default: random); a run for each");
  add.list("--aggregator", options.aggregators, "NAME[,NAME...]",
           names_in(methods::edge::aggregators()) + " (default: mean); a run for each");
  add.with_default("--allocator", options.allocator, "NAME",
                   "Of bandwidth: " + names_in(methods::edge::allocators()));
  add.with_default("--cohort", options.cohort, "N", "Devices of a round");
  add("--budget", options.budget, "TIME", "Of a round, which the schedulers greedy and most fill");
  add("--deadline", options.deadline, "TIME", "Of a round: updates that are later do not count");
  add.with_default("--levels", options.levels, "N", "Of qsgd and choco");
  add.with_default("--ratio", options.ratio, "R", "Elements of top-k and a-dsgd that travel");
  add.with_default("--symbols", options.symbol_share, "R",
                   "Of a-dsgd: symbols for each element of the model");
  add.with_default("--outer-step-size", options.outer_step_size, "X", "Of the server with diloco");
  add.with_default("--momentum", options.momentum, "X", "Likewise, from 0 to below 1");
  add.with_default("--snr", options.snr_db, "DB", "Of sums over the air: power of a symbol beside the noise");
  add.with_default("--threshold", options.threshold, "X", "Of sums over the air: least |h|^2 of a sender");
  add.with_default("--owners", options.owners, "N", "Devices that send an element of tamuna; 0 for all");
  add.with_default("--cells", options.cells, "N", "Small cells of hierarchical");
  add.with_default("--intra-rounds", options.intra_rounds, "N", "Rounds in a small cell before all average");
  add.with_default("--backhaul", options.backhaul, "RATE", "Between base stations");
  add.with_default("--graph", options.graph, "NAME", "Of gossip: " + names_in(methods::edge::graph_kinds()));
  add.with_default("--density", options.density, "X", "Of erdos-renyi and geometric");
  add.with_default("--consensus", options.consensus, "X", "Step of choco, at most 1");
}

void add_run(CLI::App& parent) {
  CLI::App* const command = parent.add_subcommand(
      "run", "Train on devices in a modelled radio cell, and count time, bits and energy");
  const auto options = std::make_shared<RunOptions>();
  const OptionAdder add(*command);
  add("FILE", options->file, "FILE",
      "Places and processors of devices as JSON (docs/formats.md); without it they are drawn");
  add_policies_to(add, *options);
  std::vector<CLI::Option*> draws{add_task_to(add, *options)};
  add.with_default("--cycles", options->cycles, "N", "Of a sample's gradient");
  draws.push_back(add.with_default("--slowest", options->slowest, "HERTZ", "Of a processor"));
  draws.push_back(add.with_default("--fastest", options->fastest, "HERTZ", "Others lie between"));
  add.with_default("--random-share", options->random_share, "X",
                   "Of the time of computing: the mean of its random part, beside the rest");
  add_cell_to(add, options->cell);
  add.with_default("--rounds", options->rounds, "N", "Ends a run");
  add("--seconds", options->seconds, "TIME", "Of virtual time, ends a run, too");
  add.with_default("--seed", options->seed, "N", "Draws samples, places, fading, computing and noise");
  add("--csv", options->csv, "FILE", "Write a line for each round to FILE");
  add("--json", options->json, "FILE", "Likewise as JSON");
  add("--plot", options->plot, "FILE", "Draw accuracy and loss against time: SVG, PDF or PNG by its ending");
  command->footer("The same options and seed give the same bits.");
  command->callback([options, draws] {
    for (const CLI::Option* const option : draws) options->draws = options->draws || option->count() > 0;
    run_run(*options);
  });
}

}  // namespace

void add_edge_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("edge", "Learning at the edge: plans for groups, and training over radio")
          ->require_subcommand(1);
  add_plan(*command);
  add_run(*command);
  add_edge_train(*command);
  add_edge_average(*command);
}

}  // namespace dear::cli
