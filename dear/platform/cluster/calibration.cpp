#include "dear/platform/cluster/calibration.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear {

Cluster calibrated(Cluster cluster, const Calibration& calibration) {
  const auto& [launch, hold, bandwidth, slowdown] = calibration;
  if (!std::isfinite(bandwidth) || bandwidth <= 0 || !std::isfinite(slowdown) || slowdown < 1)
    throw ConfigError(
        fmt::format("nodes of '{}' with {} B/s inside, {} times as slow beside computation, cannot be: give "
                    "a bandwidth above "
                    "0 and a slowdown of 1 or more",
                    cluster.name, bandwidth, slowdown));
  double slowest = 0;  // seconds a byte of a ring over all ranks
  for (std::size_t i = 1; i < cluster.dimensions.size(); ++i) {
    const Dimension& dimension = cluster.dimensions[i];
    slowest = std::max(slowest,
                       dimension.link.beta_seconds_per_byte * dimension.oversubscription / dimension.links);
  }
  Dimension& node = cluster.dimensions.at(0);
  node.link.beta_seconds_per_byte = 1 / bandwidth;
  const double inside = node.link.beta_seconds_per_byte / node.links;
  cluster.interference.communication = std::max(slowest, slowdown * inside) / std::max(slowest, inside);
  cluster.software = {.launch_seconds = launch, .hold_seconds = hold};
  validate(cluster);
  return cluster;
}

}  // namespace dear
