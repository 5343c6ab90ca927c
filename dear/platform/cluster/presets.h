#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "dear/platform/cluster/cluster.h"

namespace dear {

struct ClusterPreset {
  std::string_view summary;  // one line, with the source of its numbers
  Cluster cluster;
};
const std::vector<ClusterPreset>& clusters();

// A preset by its name, the cluster of a file (cluster_file.h), or any network of network.h as a flat
// cluster; with a number of ranks, so many of it (with_ranks), which a network needs. ConfigError that lists
// what there is.
Cluster find_cluster(std::string_view text, std::optional<int> ranks = std::nullopt);

}  // namespace dear
