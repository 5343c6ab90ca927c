#include "dear/platform/cluster/cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 30;
// Far slower than any network or rank, so that no time over many messages, bytes and ranks overflows.
constexpr double kMostSeconds = 1e6;  // of a message, a launch
constexpr double kMostSecondsPerByte = 1e3;
constexpr double kMostTimesAsLong = 1e6;

bool is_in(double value, double least, double most) { return value >= least && value <= most; }

constexpr std::array<std::string_view, 3> kWirings = {"ring", "switched", "full-mesh"};  // as in Wiring

void validate(const Dimension& dimension, const std::string& where) {
  if (dimension.name.empty()) throw ConfigError(where + " has no name: give it one");
  const std::string named = fmt::format("{} '{}'", where, dimension.name);
  const auto& [alpha, beta] = dimension.link;
  if (dimension.size < 1)
    throw ConfigError(fmt::format("{} has {} members: it needs at least 1", named, dimension.size));
  if (!is_in(alpha, 0, kMostSeconds) || !is_in(beta, 0, kMostSecondsPerByte))
    throw ConfigError(
        fmt::format("the link of {} takes {} s a message and {} s a byte: give 0 to {:g} and 0 to {:g}",
                    named, alpha, beta, kMostSeconds, kMostSecondsPerByte));
  if (dimension.links < 1)
    throw ConfigError(
        fmt::format("a member of {} has {} links: it needs at least 1", named, dimension.links));
  if (!is_in(dimension.oversubscription, 1, kMostTimesAsLong))
    throw ConfigError(
        fmt::format("{} is oversubscribed {} times: 1 is a switch that blocks nothing, more "
                    "than 1 one that does",
                    named, dimension.oversubscription));
  if (dimension.oversubscription > 1 && dimension.wiring != Wiring::switched)
    throw ConfigError(fmt::format("{} is a {}: only a switched one can be oversubscribed", named,
                                  name_of(dimension.wiring)));
}

// "1 to 4 or a multiple of 4 up to 64"
std::string numbers_of_ranks(const Cluster& cluster) {
  std::string text = "1";
  int inside = 1;
  for (const Dimension& dimension : cluster.dimensions) {
    if (dimension.size == 1) continue;
    text += inside == 1 ? fmt::format(" to {}", dimension.size)
                        : fmt::format(" or a multiple of {} up to {}", inside, inside * dimension.size);
    inside *= dimension.size;
  }
  return text;
}

}  // namespace

std::string name_of(Wiring wiring) { return std::string(kWirings.at(static_cast<std::size_t>(wiring))); }

Wiring find_wiring(std::string_view name) {
  const auto* const found = std::find(kWirings.begin(), kWirings.end(), name);
  if (found == kWirings.end())
    throw ConfigError(
        fmt::format("there is no wiring '{}'; choose one of {}", name, fmt::join(kWirings, ", ")));
  return static_cast<Wiring>(found - kWirings.begin());
}

int Cluster::ranks() const {
  int product = 1;
  for (const Dimension& dimension : dimensions) product *= dimension.size;
  return product;
}

std::vector<int> lanes_of(const Cluster& cluster) {
  std::vector<int> lanes;
  int opened = 0;
  int below = 0;                      // the lane of the dimension below
  std::optional<int> switches_below;  // the lane of the switched dimensions that a message from above takes
  for (const Dimension& dimension : cluster.dimensions) {
    if (dimension.size > 1) {
      if (dimension.beside) switches_below.reset();
      below = switches_below ? *switches_below : opened++;
      if (dimension.wiring == Wiring::switched) switches_below = below;
    }
    lanes.push_back(below);
  }
  return lanes;
}

double bytes_per_second_of_rank(const Cluster& cluster, int dimension) {
  double ranks_of_member = 1;
  for (int inner = 0; inner < dimension; ++inner)
    ranks_of_member *= cluster.dimensions.at(static_cast<std::size_t>(inner)).size;
  const Dimension& of = cluster.dimensions.at(static_cast<std::size_t>(dimension));
  const double peers = of.wiring == Wiring::full_mesh ? of.size - 1 : 1;
  const double beta = of.link.beta_seconds_per_byte * of.oversubscription * ranks_of_member / of.links;
  return beta > 0 ? peers / beta : std::numeric_limits<double>::infinity();
}

Cluster flat_cluster(const Network& network, int ranks) {
  Cluster cluster{.name = network.name,
                  .dimensions = {{.name = "network", .size = ranks, .link = network.link}}};
  validate(cluster);
  return cluster;
}

Cluster with_ranks(const Cluster& cluster, int ranks) {
  Cluster part = cluster;
  if (part.dimensions.size() == 1) part.dimensions.front().size = ranks;
  std::vector<Dimension> filled;
  int members = ranks;
  for (Dimension& dimension : part.dimensions) {
    const int size = std::min(dimension.size, members);
    if (size < 1 || members % size != 0) break;
    members /= size;
    dimension.size = size;
    if (size > 1) filled.push_back(dimension);
  }
  if (members != 1)
    throw ConfigError(fmt::format("cluster '{}' has no part of {} ranks: give {}", cluster.name, ranks,
                                  numbers_of_ranks(cluster)));
  if (filled.empty()) filled.push_back(part.dimensions.front());
  part.dimensions = std::move(filled);
  std::erase_if(part.stragglers, [&](const Straggler& straggler) { return straggler.rank >= ranks; });
  validate(part);
  return part;
}

void validate(const Cluster& cluster) {
  const std::string named = fmt::format("cluster '{}'", cluster.name);
  if (cluster.dimensions.empty()) throw ConfigError(named + " has no dimension: give one, innermost first");
  std::int64_t ranks = 1;
  for (std::size_t i = 0; i < cluster.dimensions.size(); ++i) {
    const Dimension& dimension = cluster.dimensions[i];
    validate(dimension, fmt::format("dimension {} of {}", i, named));
    const std::int64_t ranks_of_member = ranks;
    ranks *= dimension.size;
    if (ranks > kMostRanks) throw ConfigError(fmt::format("{} has more than {} ranks", named, kMostRanks));
    if (dimension.beside && dimension.links % ranks_of_member != 0)
      throw ConfigError(fmt::format(
          "dimension {} of {} '{}' lies beside the dimensions below, but a member of {} ranks has "
          "{} links into it: give each rank one, or several",
          i, named, dimension.name, ranks_of_member, dimension.links));
  }
  std::set<int> slow;
  for (const Straggler& straggler : cluster.stragglers) {
    if (!slow.insert(straggler.rank).second)
      throw ConfigError(
          fmt::format("rank {} of {} is a straggler twice: name it once", straggler.rank, named));
    if (straggler.rank < 0 || straggler.rank >= ranks)
      throw ConfigError(
          fmt::format("{} has no rank {} to be a straggler: it has {}", named, straggler.rank, ranks));
    if (!is_in(straggler.slowdown, 1, kMostTimesAsLong))
      throw ConfigError(fmt::format("straggler {} of {} is {} times as slow: give 1 to {:g}", straggler.rank,
                                    named, straggler.slowdown, kMostTimesAsLong));
  }
  const auto& [communication, computation] = cluster.interference;
  if (!is_in(communication, 1, kMostTimesAsLong) || !is_in(computation, 1, kMostTimesAsLong))
    throw ConfigError(fmt::format(
        "on {} communication takes {} times as long beside computation, and computation {} times: give 1 to "
        "{:g}",
        named, communication, computation, kMostTimesAsLong));
  const auto& [launch, hold, buffer] = cluster.software;
  if (!is_in(launch, 0, kMostSeconds) || !is_in(hold, 0, kMostSeconds) || !is_in(buffer, 0, kMostSeconds))
    throw ConfigError(fmt::format(
        "the software of {} takes {} s to launch a collective, {} s to hold a layer and {} s to broadcast a "
        "buffer: give 0 to {:g}",
        named, launch, hold, buffer, kMostSeconds));
}

}  // namespace dear
