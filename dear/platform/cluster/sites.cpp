#include "dear/platform/cluster/sites.h"

#include <cmath>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/platform/cluster/cluster_file.h"

namespace dear {
namespace {

// std::uniform_real_distribution differs between libraries.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : generator_(seed) {}
  double between(const Drawn& range) {
    const double part = static_cast<double>(generator_() >> 11) * 0x1p-53;
    return range.least * std::exp(part * std::log(range.most / range.least));
  }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(generator_() % limit); }

 private:
  std::mt19937_64 generator_;
};

void require_range(const Drawn& range, std::string_view name) {
  if (!(range.least > 0) || !std::isfinite(range.most) || !(range.least <= range.most))
    throw ConfigError(
        fmt::format("{} from {} to {} is no range: give two finite numbers above 0, the smaller first", name,
                    range.least, range.most));
}

PairCluster empty_cluster(std::string name, std::size_t devices) {
  const PairCluster::Matrix zeros(devices, std::vector<double>(devices));
  return {.name = std::move(name), .devices = {}, .bytes_per_second = zeros, .latency_seconds = zeros};
}

// What is known of each site of a preset, whose devices are listed site by site.
struct Site {
  int devices = 0;
  double flops_per_second = 0;
  std::int64_t memory_gib = 0;
  double bits_per_second = 0;  // between two of its devices
};

// `between` is [from][to] by site, in bits a second.
PairCluster cluster_of(std::string name, const std::vector<Site>& sites,
                       const std::vector<std::vector<double>>& between, double latency_seconds) {
  std::vector<std::size_t> site_of;
  std::vector<PairDevice> devices;
  for (std::size_t site = 0; site < sites.size(); ++site) {
    for (int number = 0; number < sites[site].devices; ++number) {
      site_of.push_back(site);
      devices.push_back({.name = fmt::format("{}{}", static_cast<char>('a' + site), number),
                         .flops_per_second = sites[site].flops_per_second,
                         .memory_bytes = sites[site].memory_gib << 30});
    }
  }
  PairCluster cluster = empty_cluster(std::move(name), devices.size());
  cluster.devices = std::move(devices);
  for (std::size_t from = 0; from < site_of.size(); ++from) {
    const Site& site = sites[site_of[from]];
    for (std::size_t to = 0; to < site_of.size(); ++to) {
      if (from == to) continue;
      const bool inside = site_of[from] == site_of[to];
      cluster.bytes_per_second[from][to] =
          (inside ? site.bits_per_second : between[site_of[from]][site_of[to]]) / 8;
      cluster.latency_seconds[from][to] = inside ? 2e-4 : latency_seconds;
    }
  }
  return cluster;
}

}  // namespace

PairCluster random_sites(const SiteOptions& options) {
  if (options.sites < 1 || options.devices < options.sites)
    throw ConfigError(
        fmt::format("{} devices cannot lie in {} sites: give at least one site, and a device "
                    "for each",
                    options.devices, options.sites));
  if (options.flops_per_second.empty() || options.memory_bytes.empty())
    throw ConfigError("sites need a speed and a memory of their devices: give at least one of each");
  require_range(options.inside_bits_per_second, "the bandwidth inside a site");
  require_range(options.between_bits_per_second, "the bandwidth between sites");
  require_range(options.inside_latency_seconds, "the latency inside a site");
  require_range(options.between_latency_seconds, "the latency between sites");

  Draws draws(options.seed);
  const std::size_t devices = index_of(options.devices), sites = index_of(options.sites);
  std::vector<std::size_t> listed(devices);
  for (std::size_t i = 0; i < devices; ++i) {
    const std::size_t at = draws.below(i + 1);
    listed[i] = listed[at];
    listed[at] = i;
  }
  PairCluster cluster =
      empty_cluster(fmt::format("{}-devices-{}-sites-seed-{}", devices, sites, options.seed), devices);
  for (const std::size_t device : listed) {
    const std::size_t site = device % sites;
    cluster.devices.push_back(
        {.name = fmt::format("site{}-{}", site, device / sites),
         .flops_per_second = options.flops_per_second[site % options.flops_per_second.size()],
         .memory_bytes = options.memory_bytes[site % options.memory_bytes.size()]});
  }
  for (std::size_t i = 0; i < devices; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const bool inside = listed[i] % sites == listed[j] % sites;
      const double rate =
          draws.between(inside ? options.inside_bits_per_second : options.between_bits_per_second) / 8;
      // Within the range in both directions.
      const double least =
          (inside ? options.inside_bits_per_second : options.between_bits_per_second).least / 8;
      cluster.bytes_per_second[i][j] = rate;
      cluster.bytes_per_second[j][i] = std::max(least, rate * draws.between({0.8, 1}));
      cluster.latency_seconds[i][j] = cluster.latency_seconds[j][i] =
          draws.between(inside ? options.inside_latency_seconds : options.between_latency_seconds);
    }
  }
  validate(cluster);
  return cluster;
}

const std::vector<PairClusterPreset>& pair_clusters() {
  static const std::vector<PairClusterPreset> kPresets = [] {
    std::vector<PairClusterPreset> presets;
    presets.push_back(
        {.summary = "2 sites of 4 devices, 10 Gb/s inside, 100 Mb/s and 20 ms between them: made up",
         .cluster = cluster_of("two-sites", {{4, 15e12, 16, 10e9}, {4, 15e12, 16, 10e9}},
                               {{0, 100e6}, {100e6, 0}}, 20e-3)});
    presets.push_back(
        {.summary =
             "3 sites of 8 devices at 30, 15 and 8 TFLOP/s, 10, 5 and 1 Gb/s inside, 20 to 100 Mb/s and "
             "40 ms between them, faster one way than the other: made up",
         .cluster = cluster_of("three-sites", {{8, 30e12, 24, 10e9}, {8, 15e12, 16, 5e9}, {8, 8e12, 11, 1e9}},
                               {{0, 100e6, 20e6}, {50e6, 0, 50e6}, {20e6, 40e6, 0}}, 40e-3)});
    presets.push_back({.summary =
                           "48 devices in 6 sites, 8 Mb/s to 10 Gb/s as in arXiv 2410.12707, where each "
                           "lies is drawn",
                       .cluster = random_sites()});
    presets.back().cluster.name = "fusionllm-48";
    return presets;
  }();
  return kPresets;
}

PairCluster find_pair_cluster(std::string_view text) {
  std::vector<std::string_view> names;
  for (const PairClusterPreset& preset : pair_clusters()) {
    if (preset.cluster.name == text) return preset.cluster;
    names.emplace_back(preset.cluster.name);
  }
  if (names_file(text)) return read_pair_cluster(std::string(text));
  throw ConfigError(no_such("cluster with a link for each pair", text, names));
}

}  // namespace dear
