#include "dear/platform/cluster/presets.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/platform/cluster/calibration.h"
#include "dear/platform/cluster/cluster_file.h"

namespace dear {
namespace {

constexpr Link link_of(double alpha_seconds, double bytes_per_second) {
  return {.alpha_seconds = alpha_seconds, .beta_seconds_per_byte = 1 / bytes_per_second};
}

constexpr double kGB = 1e9;
constexpr double kGbit = 1e9 / 8;

// [Note: numbers of presets] Start-ups inside nodes, and between nodes with a card for each GPU, are those
// that NCCL reckons with (src/graph/tuning.cc at commit 01afd20) for a ring with the protocol LL128: 1.9 us a
// message over NVLink, 2.5 us over PCIe, 4.0 us over the network. So are the 235 GB/s over the NVLink of an
// A100, of nominally 300. For an H100 it is the 370 GB/s of 450 that its authors name as usual
// (github.com/NVIDIA/nccl-tests/issues/212). For a V100 it is the 20 GB/s of each of its six links that NCCL
// reckons with (src/graph/topo.h), of 25. PCIe 3.0 x16 and cards have their nominal bandwidth.
constexpr Link kPcie3 = link_of(2.5e-6, 15.75 * kGB);
constexpr Link kNvlinkA100 = link_of(1.9e-6, 235 * kGB);
constexpr Link kNvlinkH100 = link_of(1.9e-6, 370 * kGB);
constexpr Link kNvlinkV100 = link_of(1.9e-6, 120 * kGB);

// The cluster of arXiv 2302.12445: 16 nodes, each with 4 GPUs and one card. What is known of its network was
// seen by rings over all 64 GPUs, which go through each card once in each direction: it is the link of a
// card, and a flat ring over this cluster takes what it takes on the flat network.
Cluster paper_cluster(std::string name, std::string_view network) {
  return {.name = std::move(name),
          .dimensions = {{.name = "node", .size = 4, .link = kPcie3},
                         {.name = "network", .size = 16, .link = parse_network(network).link}},
          .device = "rtx2080ti"};
}

Cluster calibrated_paper_cluster(std::string_view network, double buffer_seconds) {
  Cluster cluster = calibrated(paper_cluster({}, network), kRtx2080Ti);
  cluster.software.buffer_seconds = buffer_seconds;
  cluster.name = fmt::format("calibrated-{}-{}", network, cluster.ranks());
  return cluster;
}

Cluster rails(std::string name, std::string device, const Link& inside, int nodes, double gbits) {
  return {
      .name = std::move(name),
      .dimensions =
          {{.name = "node", .size = 8, .link = inside},
           {.name = "rail", .size = nodes, .link = link_of(4e-6, gbits * kGbit), .links = 8, .beside = true}},
      .device = std::move(device)};
}

// The clusters of arXiv 2404.19429: eight nodes of EC2, whose GPUs share cards of 100 Gb/s. Start-ups over
// them, 10 us a message, are an assumption: nobody published those of this network.
Cluster ec2(std::string name, std::string device, const Link& inside, int cards) {
  return {.name = std::move(name),
          .dimensions = {{.name = "node", .size = 8, .link = inside},
                         {.name = "network", .size = 8, .link = link_of(10e-6, 100 * kGbit), .links = cards}},
          .device = std::move(device)};
}

// Pods of 4096 GPUs that block nothing, and between them a seventh of what they could send, as in the cluster
// of arXiv 2407.21783, section 3.3.1, which has 8 pods of 3072. Two more switches on the way cost a
// microsecond: an assumption.
Cluster spine() {
  Cluster cluster = rails("h100-400gbit-131072", "h100", kNvlinkH100, 512, 400);
  cluster.dimensions.push_back({.name = "spine",
                                .size = 32,
                                .link = link_of(5e-6, 400 * kGbit),
                                .links = 4096,
                                .oversubscription = 7});
  return cluster;
}

Cluster sites(std::string name, double gbits) {
  return {.name = std::move(name),
          .dimensions = {{.name = "site", .size = 8, .link = parse_network("10gbe").link},
                         {.name = "wide-area", .size = 4, .link = link_of(30e-3, gbits * kGbit)}}};
}

struct ThemisDimension {
  Wiring wiring = Wiring::switched;
  int size = 1;
  double gbits = 0;  // a second, that a rank can send
};

// A network on which Themis was evaluated (Rashidi et al. 2022, doi:10.1145/3470496.3527382). Its sizes and
// bandwidths are as remembered, not as read. Messages take no time to start: nothing is known of it, and in
// the paper, where chunks of megabytes travel, bandwidth decides.
Cluster themis(std::string name, const std::vector<ThemisDimension>& dimensions) {
  Cluster cluster{.name = std::move(name), .dimensions = {}};
  int ranks = 1;
  for (const auto& [wiring, size, gbits] : dimensions) {
    const double peers = wiring == Wiring::full_mesh ? size - 1 : 1;
    cluster.dimensions.push_back({.name = fmt::format("dim{}", cluster.dimensions.size() + 1),
                                  .size = size,
                                  .wiring = wiring,
                                  .link = link_of(0, gbits * kGbit / peers),
                                  .links = ranks,
                                  .beside = true});
    ranks *= size;
  }
  return cluster;
}

constexpr Wiring kSwitched = Wiring::switched;
constexpr Wiring kRing = Wiring::ring;
constexpr Wiring kFullMesh = Wiring::full_mesh;

Cluster find_whole(std::string_view text, std::optional<int> ranks) {
  std::vector<std::string_view> names;
  for (const ClusterPreset& preset : clusters()) {
    if (preset.cluster.name == text) return preset.cluster;
    names.push_back(preset.cluster.name);
  }
  if (names_file(text)) return read_cluster(std::string(text));
  try {
    const Network network = parse_network(text);
    if (ranks) return flat_cluster(network, *ranks);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}, or one of the clusters {}{}", error.what(), fmt::join(names, ", "),
                                  did_you_mean(text, names, "")));
  }
  throw ConfigError(
      fmt::format("network '{}' is for any number of ranks: say how many, or use one of the clusters {}",
                  text, fmt::join(names, ", ")));
}

}  // namespace

const std::vector<ClusterPreset>& clusters() {
  static const std::vector<ClusterPreset> kClusters{
      {.summary = "4 ranks on the network 1gbit",
       .cluster = flat_cluster({"1gbit-4", parse_network("1gbit").link}, 4)},
      {.summary = "16 nodes of 4 RTX 2080 Ti, one 10 Gb/s card a node, as in arXiv 2302.12445: network 10gbe",
       .cluster = paper_cluster("10gbe-64", "10gbe")},
      {.summary =
           "16 nodes of 4 RTX 2080 Ti, one InfiniBand card a node, as in arXiv 2302.12445: network 100gbib",
       .cluster = paper_cluster("100gbib-64", "100gbib")},
      {.summary =
           "10gbe-64 with what docs/study fits to published iterations: launches, holds, nodes, buffers",
       .cluster = calibrated_paper_cluster("10gbe", kBufferSecondsOnEthernet)},
      {.summary = "100gbib-64 with what docs/study fits to published iterations",
       .cluster = calibrated_paper_cluster("100gbib", 0)},
      {.summary = "64 nodes of 8 A100 on NVSwitch, a 100 Gb/s card for each GPU; start-ups as in NCCL",
       .cluster = rails("a100-100gbit-512", "a100", kNvlinkA100, 64, 100)},
      {.summary = "64 nodes of 8 A100 on NVSwitch, a 200 Gb/s card for each GPU, as a DGX A100 has them; "
                  "start-ups as in NCCL",
       .cluster = rails("dgx-a100-200gbit-512", "a100", kNvlinkA100, 64, 200)},
      {.summary = "128 nodes of 8 H100 on NVSwitch, a 400 Gb/s card for each GPU, as a DGX H100 has them; "
                  "start-ups as in NCCL",
       .cluster = rails("dgx-h100-400gbit-1024", "h100", kNvlinkH100, 128, 400)},
      {.summary = "32 pods of 512 nodes of 8 H100, a 400 Gb/s card for each GPU, 1:7 between pods as in "
                  "arXiv 2407.21783",
       .cluster = spine()},
      {.summary =
           "8 nodes of 8 A100 on NVSwitch, four 100 Gb/s cards a node (EC2 p4de), as in arXiv 2404.19429",
       .cluster = ec2("p4de-64", "a100", kNvlinkA100, 4)},
      {.summary = "8 nodes of 8 V100 on NVLink, one 100 Gb/s card a node (EC2 p3dn), as in arXiv 2404.19429",
       .cluster = ec2("p3dn-64", "v100", kNvlinkV100, 1)},
      {.summary = "4 sites of 8 ranks on 10 Gb/s Ethernet, 30 ms and 1 Gb/s between sites: made up",
       .cluster = sites("geo-1gbit-32", 1)},
      {.summary = "4 sites of 8 ranks on 10 Gb/s Ethernet, 30 ms and 10 Gb/s between sites: made up",
       .cluster = sites("geo-10gbit-32", 10)},
      {.summary = "2D-SW_SW of arXiv 2110.04478: switches of 16 and 64, 1200 and 800 Gb/s for each rank",
       .cluster = themis("themis-2d-sw-sw-1024", {{kSwitched, 16, 1200}, {kSwitched, 64, 800}})},
      {.summary = "3D-SW_SW_SW_homo of arXiv 2110.04478: switches of 16, 8 and 8, 800 Gb/s each",
       .cluster = themis("themis-3d-sw-sw-sw-homo-1024",
                         {{kSwitched, 16, 800}, {kSwitched, 8, 800}, {kSwitched, 8, 800}})},
      {.summary = "3D-SW_SW_SW_hetero of arXiv 2110.04478: the same, 1600, 800 and 400 Gb/s",
       .cluster = themis("themis-3d-sw-sw-sw-hetero-1024",
                         {{kSwitched, 16, 1600}, {kSwitched, 8, 800}, {kSwitched, 8, 400}})},
      {.summary =
           "3D-FC_Ring_SW of arXiv 2110.04478: full meshes of 8, rings of 16, switches of 8; 1400, 800 "
           "and 400 Gb/s",
       .cluster = themis("themis-3d-fc-ring-sw-1024",
                         {{kFullMesh, 8, 1400}, {kRing, 16, 800}, {kSwitched, 8, 400}})},
      {.summary = "4D-Ring_SW_SW_SW of arXiv 2110.04478: rings of 4, switches of 4, 8 and 8; 2000, 1600, 800 "
                  "and 400 Gb/s",
       .cluster = themis("themis-4d-ring-sw-sw-sw-1024",
                         {{kRing, 4, 2000}, {kSwitched, 4, 1600}, {kSwitched, 8, 800}, {kSwitched, 8, 400}})},
      {.summary =
           "4D-Ring_FC_Ring_SW of arXiv 2110.04478: rings of 4, full meshes of 8, rings of 4, switches "
           "of 8; 3000, 1400, 1200 and 800 Gb/s",
       .cluster = themis("themis-4d-ring-fc-ring-sw-1024",
                         {{kRing, 4, 3000}, {kFullMesh, 8, 1400}, {kRing, 4, 1200}, {kSwitched, 8, 800}})}};
  return kClusters;
}

Cluster find_cluster(std::string_view text, std::optional<int> ranks) {
  const Cluster cluster = find_whole(text, ranks);
  return ranks ? with_ranks(cluster, *ranks) : cluster;
}

}  // namespace dear
