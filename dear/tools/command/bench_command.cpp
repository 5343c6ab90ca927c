#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/launch/cores.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/bench_collectives/bandwidth_plot.h"
#include "dear/tools/bench_collectives/launched_benchmark.h"
#include "dear/tools/bench_collectives/link_fit.h"
#include "dear/tools/bench_collectives/worker.h"
#include "dear/tools/bench_collectives/worker_processes.h"
#include "dear/tools/bench_command/bench_options.h"
#include "dear/tools/bench_command/bench_report.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/exit_status.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"

namespace dear::cli {
namespace {

constexpr const char* kName = "dear bench collective";

void show_progress(std::int64_t bytes) {
  if (::isatty(STDERR_FILENO) != 0) {
    fmt::print(stderr, "\r\033[Kmeasuring {} ", format_bytes(bytes));
  }
}
void end_progress() {
  if (::isatty(STDERR_FILENO) != 0) {
    fmt::print(stderr, "\r\033[K");
  }
}

// A signal ends this process as it would have without us, but only after the ranks.
bench_collectives::BenchmarkOutcome run_until_signalled(
    const bench_collectives::BenchmarkSettings& settings) {
  int signal = 0;
  try {
    const launch::HeldSignals signals;
    return bench_collectives::run_benchmark(settings, signals, show_progress);
  } catch (const bench_collectives::Interrupted& interrupted) {
    signal = interrupted.signal;
  }
  end_progress();
  std::raise(signal);
  throw ExitStatus{128 + signal};  // where it is ignored
}

void write_outputs(const BenchSettings& settings, const bench_collectives::BenchmarkOutcome& outcome,
                   Modelled modelled) {
  if (!settings.json.empty()) {
    write_results(settings.json, bench_collectives::results_json(outcome.results), modelled);
  }
  if (!settings.plot.empty() && !outcome.results.empty()) {
    const std::string title = fmt::format("{}, {}, {}", name_of(settings.benchmark.operation),
                                          dear::name_of(settings.benchmark.dtype),
                                          counted(index_of(settings.benchmark.ranks), "rank"));
    charts::write_picture(settings.plot, bench_collectives::bandwidth_plot(outcome.results, title));
  }
  if (!settings.cluster.empty() && !outcome.results.empty()) {
    const Cluster cluster = bench_collectives::fit_cluster(outcome.results, settings.benchmark.operation);
    write_cluster(cluster, settings.cluster);
    fmt::print("\n{}", bench_collectives::fit_text(cluster));
  }
}

void run_collective(const BenchOptions& options) {
  const LaunchEnvironment environment = read_launch_environment();
  const BenchSettings settings = check(options, environment, this_installation());
  Circumstances circumstances{.cores = static_cast<int>(launch::usable_cores().size()),
                              .load_before = load_of_last_minute(),
                              .program = "dear " DEAR_VERSION};
  bench_collectives::BenchmarkOutcome outcome =
      settings.benchmark.launched
          ? bench_collectives::run_launched_benchmark(settings.benchmark, environment, show_progress)
          : run_until_signalled(settings.benchmark);
  if (environment.rank != 0) {  // rank 0 speaks for all
    if (!outcome.failures.empty()) {
      throw ExitStatus{kExitFailure};
    }
    return;
  }
  end_progress();
  circumstances.load_after = load_of_last_minute();
  outcome.notes.insert(outcome.notes.begin(), settings.notes.begin(), settings.notes.end());

  fmt::print("{}\n{}\n{}", heading(settings.benchmark), result_table(outcome.results),
             circumstances_text(settings.benchmark, outcome, circumstances));
  write_checked([&] { write_outputs(settings, outcome, {.communication = options.network.has_value()}); });
  if (!outcome.failures.empty()) {
    std::fflush(stdout);
    fmt::print(stderr, "{}", failures_text(outcome.failures, kName));
    throw ExitStatus{kExitFailure};
  }
}

std::string names(const std::vector<bench_collectives::Library>& table, bool rivals) {
  std::string text;
  for (const bench_collectives::Library& library : table) {
    if (library.rival == rivals) {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", library.name, library.summary);
    }
  }
  return text;
}

void add_collective(CLI::App& parent) {
  CLI::App* const command =
      parent.add_subcommand("collective", "Measure collectives of several backends, and rivals, in one run");
  const auto options = std::make_shared<BenchOptions>();
  std::vector<std::string_view> operations;
  for (const bench_collectives::MeasuredOperation operation : bench_collectives::measured_operations())
    operations.push_back(name_of(operation));
  const OptionAdder add(*command);
  add("--ranks", options->ranks, "N",
      "Ranks of each library, on this host; under a launcher, those that it started")
      ->default_str("2");
  add.list("--sizes", options->sizes, "SIZE[,SIZE...]",
           "Bytes of the vector on each rank: sizes, or FIRST..LAST for each fourfold between")
      ->default_str("4B..64MiB");
  add.list("--backend", options->backends, "NAME[,NAME...]",
           "What to measure: " + names(bench_collectives::libraries(), false) +
               "; under a launcher: " + names(bench_collectives::launched_backends(), false))
      ->default_str("shm");
  add.with_default("--operation", options->operation, "NAME", fmt::format("{}", fmt::join(operations, ", ")));
  add("--seed", options->seed, "N",
      "Draws how many elements each rank sends to each in an all-to-all-v, from none to a full block; the "
      "table shows what ranks sent to others, and an all-to-all of full blocks beside it")
      ->default_str("1");
  add.with_default("--dtype", options->dtype, "NAME", "fp32, fp64, fp16, bf16, int32, int64, or uint8");
  add.with_default("--repeat", options->repeat, "N",
                   "Repetitions at each size; every library has one in turn");
  add.list("--rivals", options->rivals, "NAME[,NAME...]",
           "What to compare with: " + names(bench_collectives::libraries(), true) +
               ", or none (default: those there are)");
  command->add_flag("--reproducible", options->reproducible,
                    "DeAR's backends add in the order of ranks, to the same bits on each of them");
  add("--ahead", options->ahead, "N",
      "DeAR's backends issue so many operations before they wait for the first, as training does; times are "
      "of each")
      ->default_str("1");
  command->add_flag("--touch", options->touch,
                    "Each rank writes its vector before each operation, and reads the result after it, as "
                    "programs do; that takes part in the time");
  command->add_flag(
      "--interference", options->interference,
      fmt::format("Measure the first backend once more while every rank multiplies matrices: what "
                  "communication and computation take from each other, for the cluster file, "
                  "too; with {} operations in flight unless --ahead says otherwise",
                  kAheadInTraining));
  add("--late", options->late, "TIME",
      "Rank 0 begins each repetition so much after the others: what part of a core those use who wait, and "
      "how long rank 0 takes then");
  options->grid.add_to(*command, true);
  add("--network", options->network, "FILE",
      "Model the networks of a grid: a cluster file of several dimensions; the table then shows what chunk "
      "plans expect, too");
  add("--json", options->json, "FILE", "Write the results to FILE");
  add("--plot", options->plot, "FILE", "Draw bus bandwidth against size, as SVG, PDF or PNG by its ending");
  add("--cluster", options->cluster, "FILE",
      "Fit alpha and beta to the first backend, and write the cluster file that `dear simulate --network` "
      "reads");
  add.with_default("--timeout", options->timeout, "TIME", "How long to wait for each measurement");
  command->add_flag_callback(
      "--no-bind", [options] { options->bind = false; }, "Leave ranks where the system puts them");
  command->add_flag_callback(
      "--bind", [options] { options->bind = true; },
      "Keep each rank on its part of the cores (default: where every rank can have one)");
  command->footer(
      "Every result is verified, on every rank and at each size. Times are from the first rank's start to "
      "the\n"
      "last rank's end; algbw is bytes over median, busbw what the busiest link carries, as nccl-tests "
      "defines\n"
      "it (all-reduce, and the pair: 2 (n-1)/n; reduce-scatter, all-gather, all-to-all: (n-1)/n; broadcast: "
      "1;\n"
      "all-to-all-v: what the rank sent that sent most).\n"
      "Under a launcher (mpirun -n 8 dear bench collective) each process is a rank, on whatever hosts; a "
      "repetition\n"
      "is then as long as on the rank where it is longest, and a failure ends the run.\n"
      "The exit code is 1 when a library fails or computes wrongly; the others are measured all the "
      "same.");
  command->callback([options] { run_collective(*options); });
}

// Adds the hidden command that a benchmark starts as each of its ranks.
void add_worker(CLI::App& parent) {
  CLI::App* const command = parent.add_subcommand("worker", "A rank of a benchmark")->group("");
  struct Words {
    bench_collectives::WorkerOptions options;
    std::string timeout;
    GridOptions grid;
    std::optional<std::string> network;
  };
  const auto words = std::make_shared<Words>();
  command->add_option("--library", words->options.library)->required();
  command->add_option("--control", words->options.control)->required();
  command->add_option("--timeout", words->timeout)->required();
  command->add_flag("--bind", words->options.bind);
  command->add_flag("--reproducible", words->options.opening.reproducible);
  command->add_option("--ahead", words->options.opening.ahead);
  words->grid.add_to(*command, false);
  command->add_option("--network", words->network);
  command->callback([words] {
    const auto grids = checked_grids(words->grid, words->network, read_launch_environment().size);
    if (!grids.empty()) words->options.opening.grid = grids.front();
    words->options.opening.timeout = std::chrono::duration<double>(parse_seconds(words->timeout));
    bench_collectives::run_worker(words->options);
  });
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("bench", "Measure parts of DeAR beside rivals")->require_subcommand(1);
  add_collective(*command);
  add_bench_links(*command);
  add_worker(*command);
}

}  // namespace dear::cli
