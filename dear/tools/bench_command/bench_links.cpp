#include "dear/tools/bench_command/bench_links.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/backends/backends.h"
#include "dear/tools/bench_command/bench_options.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

// One value for each rank: those that are given, or the one for all.
template <typename Value>
std::vector<Value> for_each_rank(std::string_view option, std::vector<Value> given, int ranks) {
  if (given.size() == 1) given.resize(index_of(ranks), given.front());
  if (!given.empty() && given.size() != index_of(ranks))
    throw ConfigError(fmt::format("{} has {} values for {} ranks: give one for all, or one for each", option,
                                  given.size(), ranks));
  return given;
}

std::string rate_text(double bytes_per_second) {
  const double bits = 8 * bytes_per_second;
  return bits >= 1e9 ? fmt::format("{:.3g} Gb/s", bits / 1e9) : fmt::format("{:.3g} Mb/s", bits / 1e6);
}

// A matrix whose rows are senders.
std::string matrix_text(const std::string& what, const PairCluster::Matrix& matrix,
                        const std::function<std::string(double)>& text_of) {
  std::vector<std::string> header{what};
  for (std::size_t to = 0; to < matrix.size(); ++to) header.push_back(fmt::format("to {}", to));
  Table table(header, {.left_columns = 1});
  for (std::size_t from = 0; from < matrix.size(); ++from) {
    std::vector<std::string> row{fmt::format("from {}", from)};
    for (std::size_t to = 0; to < matrix.size(); ++to)
      row.push_back(from == to ? "-" : text_of(matrix[from][to]));
    table.add(row);
  }
  return table.to_string();
}

std::string devices_text(const PairCluster& cluster) {
  Table table({"rank", "device", "GFLOP/s", "memory"}, {.left_columns = 2});
  for (std::size_t rank = 0; rank < cluster.devices.size(); ++rank) {
    const PairDevice& device = cluster.devices[rank];
    table.add({std::to_string(rank), device.name, fmt::format("{:.1f}", device.flops_per_second / 1e9),
               format_bytes(device.memory_bytes)});
  }
  return table.to_string();
}

}  // namespace

LinksSettings check(const LinksOptions& options, const LaunchEnvironment& environment) {
  LinksSettings settings;
  settings.workers = checked_workers(options.workers, 2, environment);
  if (settings.workers < 2)
    throw ConfigError("--workers: one rank alone has no links to measure: give 2 or more");
  settings.times.sizes = parse_option("--sizes", [&] { return parse_sizes(options.sizes); });
  const std::vector<std::int64_t>& sizes = settings.times.sizes;
  if (sizes.size() < 2)
    throw ConfigError("--sizes: a bandwidth is fitted to two sizes or more: give another one");
  check_range("--repeat", options.repeat, 1, kMostRepeats);
  settings.times.repeat = static_cast<int>(options.repeat);
  const double longest = parse_option("--longest", [&] { return parse_seconds(options.longest); });
  settings.times.longest = std::chrono::duration<double>(longest);
  if (!options.backend.empty()) parse_option("--backend", [&] { return find_backend(options.backend).name; });
  if (options.network)
    settings.network = checked_network(*options.network, options.backend, settings.workers);
  settings.name = options.name.value_or("");
  settings.flops = for_each_rank("--flops", options.flops, settings.workers);
  for (const double flops : settings.flops)
    if (!std::isfinite(flops) || flops <= 0)
      throw ConfigError(fmt::format("--flops is {}, but must be a finite number above 0", flops));
  std::vector<std::int64_t> memory;
  for (const std::string& text : options.memory)
    memory.push_back(parse_option("--memory", [&] { return parse_bytes(text); }));
  settings.memory = for_each_rank("--memory", memory, settings.workers);
  settings.timeout_seconds = checked_timeout(options.timeout, "120s");
  if (environment.rank == 0) {  // which is the one that writes
    settings.output = checked_output_path("--output", options.output);
    settings.json = checked_output_path("--json", options.json);
    refuse_shared_outputs({{"--output", settings.output}, {"--json", settings.json}});
  }
  return settings;
}

std::string to_text(const LinksResult& result) {
  std::string text = matrix_text("bandwidth", result.cluster.bytes_per_second, rate_text) + "\n" +
                     matrix_text("latency", result.cluster.latency_seconds, format_seconds) + "\n" +
                     devices_text(result.cluster) + "\n";
  double worst = -1;
  const bench_collectives::PairTimes* of = nullptr;
  for (const bench_collectives::PairTimes& times : result.times) {
    const double residual = fit_link_of_pair(times).worst_residual;
    if (residual <= worst) continue;
    worst = residual;
    of = &times;
  }
  if (of != nullptr)
    text += fmt::format(
        "first quartiles of {} round trips; they differ from their fit by {:.0f} % at most, from {} to {}\n",
        result.repeat, 100 * worst, of->from, of->to);
  return text;
}

std::string to_json(const LinksResult& result) {
  using Json = nlohmann::ordered_json;
  Json links = Json::array();
  for (const bench_collectives::PairTimes& times : result.times) {
    Json trips = Json::array();
    for (const bench_collectives::RoundTrip& trip : times.trips)
      trips.push_back({{"bytes", trip.bytes}, {"seconds", trip.seconds}});
    links.push_back(
        {{"from", times.from},
         {"to", times.to},
         {"bytes_per_second", result.cluster.bytes_per_second[index_of(times.from)][index_of(times.to)]},
         {"latency_seconds", result.cluster.latency_seconds[index_of(times.from)][index_of(times.to)]},
         {"worst_residual", fit_link_of_pair(times).worst_residual},
         {"round_trips", trips}});
  }
  Json devices = Json::array();
  for (const PairDevice& device : result.cluster.devices)
    devices.push_back({{"name", device.name},
                       {"flops_per_second", device.flops_per_second},
                       {"memory_bytes", device.memory_bytes}});
  return Json{{"name", result.cluster.name},
              {"group", result.description},
              {"network", result.modelled_network},
              {"ranks", result.cluster.devices.size()},
              {"repeat", result.repeat},
              {"devices", devices},
              {"links", links}}
             .dump(2) +
         "\n";
}

}  // namespace dear::cli
