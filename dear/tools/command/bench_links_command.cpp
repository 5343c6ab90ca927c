#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/launch/cores.h"
#include "dear/base/launch/launcher.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/backends/backends.h"
#include "dear/comm/group/exchange.h"
#include "dear/tools/bench_collectives/computation.h"
#include "dear/tools/bench_command/bench_links.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/command/train_report.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/run_as_ranks.h"

namespace dear::cli {
namespace {

// What a rank says of the device that it stands for.
struct Device {
  std::array<char, 65> host{};
  double flops_per_second = 0;
  std::int64_t memory_bytes = 0;
};

// All ranks compute at once, as they do in training: those of a host share its cores, and its memory.
Device this_device(const LinksSettings& settings, const Group& group, int ranks_here) {
  Device device;
  ::gethostname(device.host.data(), device.host.size() - 1);
  const std::size_t rank = index_of(group.rank());
  if (settings.flops.empty()) {
    group.barrier().wait();
    const int cores = static_cast<int>(launch::usable_cores().size());
    device.flops_per_second = bench_collectives::measure_flops_per_second(std::max(1, cores / ranks_here));
  } else {
    device.flops_per_second = settings.flops[rank];
  }
  device.memory_bytes = settings.memory.empty()
                            ? std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE) / ranks_here
                            : settings.memory[rank];
  return device;
}

std::vector<PairDevice> all_devices(const LinksSettings& settings, const Group& group, int ranks_here) {
  std::vector<PairDevice> devices;
  for (const Device& one : comm::all_gather_values(group, this_device(settings, group, ranks_here)))
    devices.push_back({.name = fmt::format("{}-{}", one.host.data(), devices.size()),
                       .flops_per_second = one.flops_per_second,
                       .memory_bytes = one.memory_bytes});
  return devices;
}

void run_rank(const LinksSettings& settings, int ranks_here, const Group& group, const std::string& said) {
  const bool shows = group.rank() == 0 && ::isatty(STDERR_FILENO) != 0;
  std::vector<PairDevice> devices = all_devices(settings, group, ranks_here);
  const std::vector<bench_collectives::PairTimes> times =
      bench_collectives::time_links(group, settings.times, [&](int one, int other) {
        if (shows) fmt::print(stderr, "\r\033[Kmeasuring ranks {} and {} of {} ", one, other, group.size());
      });
  if (shows) fmt::print(stderr, "\r\033[K");
  if (group.rank() != 0) return;
  const LinksResult result{
      .cluster = bench_collectives::cluster_of(
          std::move(devices), settings.name.empty() ? group.description() : settings.name, times),
      .times = times,
      .description = group.description(),
      .modelled_network = group.modelled_network(),
      .repeat = settings.times.repeat};
  fmt::print("{}links of {}, one pair after another\n\n{}{}", said, counted(index_of(group.size()), "rank"),
             to_text(result), network_line(result.modelled_network, result.description));
  write_checked([&] {
    if (!settings.output.empty()) {
      write_pair_cluster(result.cluster, settings.output);
      fmt::print("cluster file: {}\n", settings.output);
    }
    if (!settings.json.empty())
      write_results(settings.json, to_json(result), {.communication = !result.modelled_network.empty()});
  });
}

void run_links(const LinksOptions& options) {
  LinksSettings settings;
  int ranks_here = 1;
  run_as_ranks(
      "dear bench links",
      [&](const LaunchEnvironment& environment) {
        settings = check(options, environment);
        ranks_here = environment.local_size;
        return Ranks{
            .workers = settings.workers,
            .group = {.timeout = std::chrono::duration<double>(settings.timeout_seconds),
                      .network = settings.network,
                      .backend = options.backend},
            .settings = fmt::format("sizes {}, repeat {}, longest {}, network {}, flops {}, memory {}",
                                    fmt::join(settings.times.sizes, " "), settings.times.repeat,
                                    options.longest, settings.network ? name_of(*settings.network) : "real",
                                    fmt::join(settings.flops, " "), fmt::join(settings.memory, " "))};
      },
      [&](const Group& group, const std::string& said) { run_rank(settings, ranks_here, group, said); });
}

}  // namespace

void add_bench_links(CLI::App& bench) {
  CLI::App* const command =
      bench.add_subcommand("links", "Measure the link of each ordered pair of ranks, and write them down");
  const auto options = std::make_shared<LinksOptions>();
  const OptionAdder add(*command);
  add("--workers", options->workers, "N",
      "Ranks on this host (default 2); under a launcher, those that it started")
      ->check(CLI::Range(1, launch::kMostRanks));
  add.list("--sizes", options->sizes, "SIZE[,SIZE...]",
           "Bytes of messages: sizes, or FIRST..LAST for each fourfold between")
      ->default_str("1KiB..64MiB");
  add.with_default("--repeat", options->repeat, "N", "Round trips of each size; their first quartile counts");
  add.with_default("--longest", options->longest, "TIME",
                   "Leave out sizes of which a round trip takes longer, but for the smallest two");
  add("--backend", options->backend, "NAME",
      "What carries messages: " + names_in(backend_table()) +
          " (default: the fastest that reaches all ranks)");
  add("--network", options->network, "NETWORK", "Model a network, as in `dear train`; default: the real one");
  add("--output", options->output, "FILE",
      "Write the links and devices as a cluster with a link for each pair, for --network and for pipelines");
  add("--name", options->name, "NAME", "Of that cluster (default: what carried the messages)");
  add.list("--flops", options->flops, "RATE[,RATE...]",
           "Floating-point operations a second that a device attains, for all ranks or for each, such as "
           "15e12 (default: measured on the cores of each rank, all at once)");
  add.list("--memory", options->memory, "SIZE[,SIZE...]",
           "Memory of a device, for all ranks or for each (default: that of the host, shared by its ranks)");
  add("--json", options->json, "FILE", "Write links and all times to FILE");
  add.with_default("--timeout", options->timeout, "TIME", "How long to wait for another rank");
  command->footer(
      "While two ranks exchange messages, the others are silent. A message goes there, and one of a byte "
      "comes "
      "back:\n"
      "what its bytes add to that is the bandwidth of its direction, by a fit over sizes. Latency is half "
      "a "
      "round\n"
      "trip of a byte, alike in both directions, for the clocks of two hosts cannot tell them apart.\n"
      "On several hosts: mpirun -n 8 dear bench links --output links.json");
  command->callback([options] { run_links(*options); });
}

}  // namespace dear::cli
