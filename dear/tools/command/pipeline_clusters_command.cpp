#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/sites.h"
#include "dear/tools/case_options/pipeline_tables.h"
#include "dear/tools/case_options/policy_options.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"

namespace dear::cli {
namespace {

// As the user wrote them.
struct ClustersArguments {
  std::string cluster, output;
  std::optional<int> devices, sites;
  std::string inside, between, latency;
  std::vector<double> tflops;
  std::vector<std::string> memory;
  std::optional<std::uint64_t> seed;
};
constexpr auto kDrawing = {"--devices", "--sites",  "--inside", "--between",
                           "--latency", "--tflops", "--memory", "--seed"};

// "8mbit..100mbit", or one value.
template <typename Parse>
Drawn range_of(const char* option, const std::string& text, const Parse& parse) {
  const std::size_t dots = text.find("..");
  const std::string least = text.substr(0, dots),
                    most = dots == std::string::npos ? least : text.substr(dots + 2);
  return parse_option(option, [&] { return Drawn{.least = parse(least), .most = parse(most)}; });
}

PairCluster drawn(const ClustersArguments& arguments) {
  SiteOptions options;
  options.devices = arguments.devices.value_or(options.devices);
  options.sites = arguments.sites.value_or(options.sites);
  options.seed = arguments.seed.value_or(options.seed);
  check_range("--devices", options.devices, 1, 1000);
  if (!arguments.inside.empty())
    options.inside_bits_per_second = range_of("--inside", arguments.inside, parse_bits_per_second);
  if (!arguments.between.empty())
    options.between_bits_per_second = range_of("--between", arguments.between, parse_bits_per_second);
  if (!arguments.latency.empty())
    options.between_latency_seconds = range_of("--latency", arguments.latency, parse_seconds);
  if (!arguments.tflops.empty()) options.flops_per_second.clear();
  for (const double tflops : arguments.tflops) options.flops_per_second.push_back(1e12 * tflops);
  if (!arguments.memory.empty()) options.memory_bytes.clear();
  for (const std::string& memory : arguments.memory)
    options.memory_bytes.push_back(parse_option("--memory", [&] { return parse_bytes(memory); }));
  return random_sites(options);
}

void run_clusters(const CLI::App& command, const ClustersArguments& arguments) {
  check_outputs({{"--output", arguments.output}});
  if (!arguments.cluster.empty()) refuse_beside("--cluster", command, kDrawing);
  bool draws = false;
  for (const char* const option : kDrawing) draws = draws || command.count(option) > 0;
  if (arguments.cluster.empty() && !draws) {
    if (!arguments.output.empty())
      throw ConfigError(
          "--output writes one cluster: name it with --cluster, or say with --devices and --sites what is "
          "drawn");
    fmt::print("{}", clusters_table());
    return;
  }
  const PairCluster cluster = draws ? drawn(arguments) : find_pair_cluster(arguments.cluster);
  if (!arguments.output.empty()) write_checked([&] { write_pair_cluster(cluster, arguments.output); });
  fmt::print("{}: {}\n\n{}", cluster.name, counted(cluster.devices.size(), "device"), sites_table(cluster));
  if (!arguments.output.empty())
    fmt::print("\ncluster: {} (for --cluster of `dear pipeline plan` and `simulate`)\n", arguments.output);
}

}  // namespace

void add_pipeline_clusters(CLI::App& pipeline) {
  CLI::App* const command =
      pipeline.add_subcommand("clusters", "List clusters with a link for each pair, show one, or draw one");
  const auto arguments = std::make_shared<ClustersArguments>();
  const OptionAdder add(*command);
  add("--cluster", arguments->cluster, "CLUSTER", "Show this one: a name of the list, or a file");
  add("--devices", arguments->devices, "N", "Draw one of so many devices")->default_str("48");
  add("--sites", arguments->sites, "N", "Of the drawn one: places among which devices are dealt")
      ->default_str("6");
  add("--inside", arguments->inside, "RATE..RATE", "Of the drawn one: bandwidths of links inside a site")
      ->default_str("1gbit..10gbit");
  add("--between", arguments->between, "RATE..RATE", "Of the drawn one: bandwidths of links between sites")
      ->default_str("8mbit..100mbit");
  add("--latency", arguments->latency, "TIME..TIME", "Of the drawn one: latencies between sites")
      ->default_str("10ms..100ms");
  add.list("--tflops", arguments->tflops, "X[,X...]",
           "Of the drawn one: TFLOP/s that training attains on devices, by site in turn")
      ->default_str("30,15,8");
  add.list("--memory", arguments->memory, "SIZE[,SIZE...]", "Of the drawn one: memory of devices, likewise")
      ->default_str("24GiB,16GiB,11GiB");
  add("--seed", arguments->seed, "N", "Of what is drawn")->default_str("1");
  add("--output", arguments->output, "FILE",
      "Write the cluster to FILE, to be edited and given to --cluster of `dear pipeline plan`");
  command->callback([arguments, command] { run_clusters(*command, *arguments); });
}

}  // namespace dear::cli
