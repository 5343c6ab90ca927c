#include "dear/cluster/cluster.h"

#include <cmath>

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 30;

void validate(const Dimension& dimension, const std::string& where) {
  if (dimension.name.empty()) throw ConfigError(where + " has no name: give it one");
  const std::string named = fmt::format("{} '{}'", where, dimension.name);
  const auto& [alpha, beta] = dimension.link;
  if (dimension.size < 1)
    throw ConfigError(fmt::format("{} has {} members: it needs at least 1", named, dimension.size));
  if (!std::isfinite(alpha) || !std::isfinite(beta) || alpha < 0 || beta < 0)
    throw ConfigError(
        fmt::format("the link of {} takes {} s a message and {} s a byte: both are finite and "
                    "not negative",
                    named, alpha, beta));
  if (dimension.links < 1)
    throw ConfigError(
        fmt::format("a member of {} has {} links: it needs at least 1", named, dimension.links));
  if (!std::isfinite(dimension.oversubscription) || dimension.oversubscription < 1)
    throw ConfigError(
        fmt::format("{} is oversubscribed {} times: 1 is a switch that blocks nothing, more "
                    "than 1 one that does",
                    named, dimension.oversubscription));
  if (dimension.oversubscription > 1 && dimension.wiring != Wiring::switched)
    throw ConfigError(fmt::format("{} is a {}: only a switched one can be oversubscribed", named,
                                  name_of(dimension.wiring)));
}

}  // namespace

std::string name_of(Wiring wiring) {
  switch (wiring) {
    case Wiring::ring:
      return "ring";
    case Wiring::switched:
      return "switched";
    case Wiring::full_mesh:
      break;
  }
  return "full-mesh";
}

int Cluster::ranks() const {
  int product = 1;
  for (const Dimension& dimension : dimensions) product *= dimension.size;
  return product;
}

void validate(const Cluster& cluster) {
  const std::string named = fmt::format("cluster '{}'", cluster.name);
  if (cluster.dimensions.empty()) throw ConfigError(named + " has no dimension: give one, innermost first");
  std::int64_t ranks = 1;
  for (std::size_t i = 0; i < cluster.dimensions.size(); ++i) {
    validate(cluster.dimensions[i], fmt::format("dimension {} of {}", i, named));
    ranks *= cluster.dimensions[i].size;
    if (ranks > kMostRanks) throw ConfigError(fmt::format("{} has more than {} ranks", named, kMostRanks));
  }
  for (const Straggler& straggler : cluster.stragglers) {
    if (straggler.rank < 0 || straggler.rank >= ranks)
      throw ConfigError(
          fmt::format("{} has no rank {} to be a straggler: it has {}", named, straggler.rank, ranks));
    if (!std::isfinite(straggler.slowdown) || straggler.slowdown < 1)
      throw ConfigError(fmt::format("straggler {} of {} is {} times as slow: give 1 or more", straggler.rank,
                                    named, straggler.slowdown));
  }
}

}  // namespace dear
