#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dear/platform/cluster/pair_cluster.h"

// Clusters of sites: links are fast inside a site and slow between sites.
namespace dear {

// What is drawn lies between these, every factor equally likely.
struct Drawn {
  double least = 0;
  double most = 0;
};

// A cluster that is drawn. Devices of a site are alike, and are dealt to sites as evenly as goes; they are
// listed in an order that is drawn too, as a broker would meet them. Each pair of devices has a link of its
// own; the way back has 0.8 to 1 of its bandwidth. The defaults span the range of FusionLLM (Tang et al.
// 2024, arXiv 2410.12707): 48 devices, 8 Mb/s to 10 Gb/s. How the paper's devices lie in sites is not known
// here.
struct SiteOptions {
  int devices = 48;
  int sites = 6;
  Drawn inside_bits_per_second{1e9, 10e9};
  Drawn between_bits_per_second{8e6, 100e6};
  Drawn inside_latency_seconds{1e-4, 5e-4};
  Drawn between_latency_seconds{1e-2, 1e-1};
  // By site, in turn: what devices attain, and their memory.
  std::vector<double> flops_per_second{30e12, 15e12, 8e12};
  std::vector<std::int64_t> memory_bytes{std::int64_t{24} << 30, std::int64_t{16} << 30,
                                         std::int64_t{11} << 30};
  std::uint64_t seed = 1;
};
// The same for every compiler, but for the rounding of exp(). ConfigError for fewer than one site or device,
// more sites than devices, and a range that is not above 0, not finite or turned round.
PairCluster random_sites(const SiteOptions& options = {});

struct PairClusterPreset {
  std::string_view summary;
  PairCluster cluster;
};
// "two-sites", "three-sites", "fusionllm-48".
const std::vector<PairClusterPreset>& pair_clusters();

// A preset by its name, or the cluster of a file. ConfigError that lists what there is.
PairCluster find_pair_cluster(std::string_view text);

}  // namespace dear
