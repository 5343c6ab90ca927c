#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/trace/chrome.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/presets.h"
#include "dear/predict/sim/collective.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

struct CollectiveArguments {
  std::string cluster;
  std::optional<int> ranks;
  std::string operation = "all-reduce";
  std::string bytes = "100MB";
  std::vector<std::string> algorithms{"baseline", "themis-fifo", "themis-scf", "themis"};
  int chunks = 64;
  std::string detail = "chunks";
  std::optional<std::string> json;
  std::optional<std::string> plot;
  std::optional<std::string> trace;
};

Collective find_operation(const std::string& name) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    if (name_of(collective) == name) return collective;
  }
  throw ConfigError(fmt::format(
      "there is no '{}' to simulate; choose one of all-reduce, reduce-scatter, all-gather", name));
}

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

void print_runs(const Cluster& cluster, const sim::CollectiveOptions& options,
                const std::vector<sim::CollectiveRun>& runs) {
  std::string sizes;
  for (const Dimension& dimension : cluster.dimensions) {
    sizes += fmt::format("{}{} x {}", sizes.empty() ? "" : ", ", dimension.size, dimension.name);
  }
  fmt::print("{} of {} on {}: {} ranks, {}\nno algorithm takes less than {}\n\n", name_of(options.operation),
             format_bytes(options.bytes), cluster.name, cluster.ranks(), sizes,
             format_seconds(sim::ideal_collective_seconds(cluster, options)));
  std::vector<std::string> header{"algorithm", "plan", "chunks", "time", "bandwidth used"};
  for (const Dimension& dimension : cluster.dimensions) header.push_back(dimension.name);
  Table table(std::move(header), {.left_columns = 2});
  for (const sim::CollectiveRun& run : runs) {
    const bool chunked = run.chunks > 0;
    std::vector<std::string> row{run.algorithm, chunked ? run.plan : "-",
                                 chunked ? std::to_string(run.chunks) : "-", format_seconds(run.seconds),
                                 percent(run.utilisation)};
    for (const sim::DimensionUse& use : run.dimensions) row.push_back(percent(use.utilisation));
    table.add(std::move(row));
  }
  fmt::print("{}", table.to_string());
}

void run_collective_command(const CollectiveArguments& arguments) {
  const std::string json = checked_output_path("--json", arguments.json);
  const std::string plot = checked_picture_path("--plot", arguments.plot);
  const std::string trace = checked_output_path("--trace", arguments.trace);
  refuse_shared_outputs({{"--json", json}, {"--plot", plot}, {"--trace", trace}});
  if (!trace.empty())
    refuse_several("--trace writes one algorithm", arguments.algorithms.size(), "--algorithm");
  const sim::CollectiveOptions options{
      .operation = parse_option("--operation", [&] { return find_operation(arguments.operation); }),
      .bytes = parse_option("--bytes", [&] { return parse_bytes(arguments.bytes); }),
      .chunks = arguments.chunks,
      .detail = parse_option("--detail", [&] { return sim::parse_chunk_detail(arguments.detail); })};
  const Cluster cluster = find_cluster(arguments.cluster, arguments.ranks);
  std::vector<sim::CollectiveRun> runs;
  for (const std::string& algorithm : arguments.algorithms) {
    runs.push_back(
        parse_option("--algorithm", [&] { return sim::run_collective(cluster, options, algorithm); }));
  }
  if (!trace.empty() && runs.front().chunks == 0) {
    throw ConfigError(fmt::format("--trace: {} has no phases to write: name an algorithm that goes in chunks",
                                  runs.front().algorithm));
  }
  const std::string picture = plot.empty() ? "" : sim::utilisation_plot(cluster, options, runs);
  write_checked([&] {
    if (!json.empty()) write_results(json, sim::to_json(cluster, options, runs), kAllModelled);
    if (!plot.empty()) charts::write_picture(plot, picture);
    if (!trace.empty()) write_chrome_trace(sim::trace_of(cluster, options, runs.front()), trace);
  });
  print_runs(cluster, options, runs);
}

}  // namespace

CLI::App* add_simulate_collective(CLI::App& simulate) {
  auto arguments = std::make_shared<CollectiveArguments>();
  CLI::App* const command = simulate.add_subcommand(
      "collective", "Predict one collective on a cluster, by several algorithms, dimension by dimension");
  const OptionAdder add(*command);
  add("--cluster,--network", arguments->cluster, "C",
      "A cluster by name (`dear clusters` lists them), a cluster file, or a flat network")
      ->required();
  add("--ranks", arguments->ranks, "N", "Ranks that take part; default: the cluster's")
      ->check(CLI::Range(1, 1 << 20));
  add.with_default("--operation", arguments->operation, "NAME", "all-reduce, reduce-scatter, or all-gather");
  add.with_default("--bytes", arguments->bytes, "SIZE", "Size of the whole vector: 1GB, 25MiB");
  add.list("--algorithm", arguments->algorithms, "NAME[,NAME...]",
           "In chunks: baseline (one dimension after another), round-robin, themis-fifo, themis-scf, "
           "balanced, or themis (the best of these); else as in `dear simulate`: auto, ring, nccl, ...")
      ->capture_default_str();
  add.with_default("--chunks", arguments->chunks, "N", "Chunks of the vector, at most")
      ->check(CLI::Range(1, 4096));
  add.with_default(
      "--detail", arguments->detail, "NAME",
      "Of algorithms in chunks: chunks (a dimension carries one phase of one chunk at a time), or "
      "messages (every message of every rank, links shared)");
  add("--json", arguments->json, "FILE", "Write the results to FILE");
  add("--plot", arguments->plot, "FILE",
      "Draw what each dimension carries when, as SVG, PDF or PNG by its ending");
  add("--trace", arguments->trace, "FILE",
      "Write a timeline for https://ui.perfetto.dev (one algorithm only)");
  command->callback([arguments] { run_collective_command(*arguments); });
  return command;
}

}  // namespace dear::cli
