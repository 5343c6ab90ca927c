#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/command/edge_live.h"
#include "dear/tools/edge_command/averages.h"
#include "dear/tools/edge_command/block_training.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/numbers.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/run_as_ranks.h"

namespace dear::cli {
namespace {

using edge_command::AverageOptions;
using edge_command::TrainOptions;

constexpr int kMostRanks = 64;

// A launcher that started the ranks started as many.
void check_ranks(int ranks, const LaunchEnvironment& environment, std::string_view what) {
  if (ranks > kMostRanks)
    throw ConfigError(fmt::format("{} are {} ranks: {} are the most", what, ranks, kMostRanks));
  if (environment.size > 1 && environment.size != ranks)
    throw ConfigError(fmt::format("{} are {} ranks, and {} started {}: start as many", what, ranks,
                                  environment.launcher, environment.size));
  if (environment.local_size != environment.size)
    throw ConfigError("ranks tell each other moments on their clock: start all of them on one host");
}

void run_train(const TrainOptions& options) {
  edge_command::TrainSettings settings;
  const systems::edge::PartelJob& job = settings.job;
  run_as_ranks(
      "dear edge train",
      [&](const LaunchEnvironment& environment) {
        settings = check(options);
        check_ranks(job.ranks(), environment, "a server and its workers");
        check_outputs({{"--json", options.json}});
        const double timeout = checked_timeout(options.timeout, "120s");
        return Ranks{
            .workers = job.ranks(),
            .group = {.timeout = std::chrono::duration<double>(timeout), .network = channels_of(job)},
            .settings = fmt::format("edge train, {}, {} {} of {}, samples {}, iterations {}, step size {}",
                                    settings.described, options.scheme, job.task.model, job.task.units,
                                    job.task.samples, job.iterations, job.step_size)};
      },
      [&](const Group& group, const std::string& /*said*/) {
        const bool first = group.rank() == 0;
        if (first)
          say(fmt::format("{}: {} {}, plan {}: an iteration takes {}\n", settings.described,
                          with_separators(job.task.units), edge_command::units_of(job), job.plan.scheme,
                          format_seconds(job.plan.whole_seconds)));
        const auto trained = train_partel(job, group, [&](int done, double loss) {
          if (10 * done / job.iterations != 10 * (done - 1) / job.iterations)
            say(fmt::format("iteration {} of {}, loss {:.4f}\n", done, job.iterations, loss));
        });
        if (!first) return;
        say(edge_command::to_text(job, trained));
        if (!options.json.empty())
          write_checked(
              [&] { write_results(options.json, edge_command::to_json(job, trained), kAllModelled); });
        edge_command::require_descent(trained);
      });
}

void run_average(const AverageOptions& options) {
  edge_command::AverageSettings settings;
  run_as_ranks(
      "dear edge average",
      [&](const LaunchEnvironment& environment) {
        settings = check(options);
        check_ranks(settings.ranks, environment, fmt::format("--ranks {}", settings.ranks));
        check_outputs({{"--json", options.json}});
        const double timeout = checked_timeout(options.timeout, "120s");
        return Ranks{.workers = settings.ranks,
                     .group = {.timeout = std::chrono::duration<double>(timeout)},
                     .settings = fmt::format(
                         "edge average, {}, graph {} {}, rounds {}, elements {}, cells {} {}, seed {}",
                         fmt::join(settings.methods, ","), options.graph, options.density, settings.rounds,
                         settings.elements, settings.cells, settings.intra_rounds, settings.seed)};
      },
      [&](const Group& group, const std::string& /*said*/) {
        std::vector<edge_command::Averaged> all;
        for (const std::string& method : settings.methods) all.push_back(average(settings, method, group));
        if (group.rank() != 0) return;
        say(fmt::format("{}\nnetwork: real, {}\n", to_text(settings, all), group.description()));
        if (!options.json.empty()) write_checked([&] { write_results(options.json, to_json(all), {}); });
        require_averages(all);
      });
}

}  // namespace

void add_edge_train(CLI::App& edge) {
  CLI::App* const command = edge.add_subcommand(
      "train", "Train block by block on ranks whose channels and processors are as a plan of PABA has them");
  const auto arguments = std::make_shared<edge_command::TrainOptions>();
  const OptionAdder add(*command);
  add("FILE", arguments->plan.file, "FILE",
      "Groups of workers as JSON (docs/formats.md); without it groups are drawn");
  add.with_default("--scheme", arguments->scheme, "NAME", names_in(methods::edge::paba_schemes()));
  add.with_default(
      "--model", arguments->model, "NAME",
      "logistic (a parameter for each word) or network (one hidden layer, cut into hidden units)");
  add.with_default("--hidden", arguments->hidden, "N", "Units of network, in place of --parameters");
  add.with_default("--features", arguments->features, "N", "Of a sample of network");
  add.with_default("--samples", arguments->samples, "N",
                   "That are drawn, for the workers of a group together");
  add.with_default("--iterations", arguments->iterations, "N", "Of gradient descent");
  add.with_default("--step-size", arguments->step_size, "X", "Of gradient descent");
  const std::vector<CLI::Option*> draws = add_groups_to(add, arguments->plan);
  add("--json", arguments->json, "FILE", "Write times, planned and taken, and losses to FILE");
  add.with_default("--timeout", arguments->timeout, "TIME", "How long to wait for another rank");
  command->footer("Ranks are processes on this host: a server, and one for each worker.");
  command->callback([arguments, draws] {
    for (const CLI::Option* const option : draws)
      arguments->plan.draws = arguments->plan.draws || option->count() > 0;
    run_train(*arguments);
  });
}

void add_edge_average(CLI::App& edge) {
  CLI::App* const command = edge.add_subcommand(
      "average", "Average vectors on ranks by gossip with neighbours, and in cells and between them");
  const auto arguments = std::make_shared<edge_command::AverageOptions>();
  const OptionAdder add(*command);
  add.list("--method", arguments->methods, "NAME[,NAME...]", "gossip, hierarchical (default: both)");
  add.with_default("--ranks", arguments->ranks, "N", "On this host");
  add.with_default("--rounds", arguments->rounds, "N", "Of averages");
  add.with_default("--elements", arguments->elements, "N", "Of a vector, fp64");
  add.with_default("--graph", arguments->graph, "NAME",
                   "Of gossip: " + names_in(methods::edge::graph_kinds()));
  add.with_default("--density", arguments->density, "X", "Of erdos-renyi and geometric");
  add("--cells", arguments->cells, "N", "Of hierarchical (default: 2)");
  add.with_default("--intra-rounds", arguments->intra_rounds, "N", "Rounds in a cell before all average");
  add.with_default("--seed", arguments->seed, "N", "Draws vectors and graphs");
  add("--json", arguments->json, "FILE", "Write what is left after each round to FILE");
  add.with_default("--timeout", arguments->timeout, "TIME", "How long to wait for another rank");
  command->callback([arguments] { run_average(*arguments); });
}

}  // namespace dear::cli
