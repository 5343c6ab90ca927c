#include "dear/comm/shaped/modelled_network.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/platform/cluster/cluster_file.h"
#include "dear/platform/cluster/sites.h"

namespace dear {

bool names_pair_cluster(std::string_view text) {
  const std::vector<PairClusterPreset>& presets = pair_clusters();
  if (std::any_of(presets.begin(), presets.end(),
                  [&](const PairClusterPreset& preset) { return preset.cluster.name == text; }))
    return true;
  if (!names_file(text)) return false;
  const std::string path(text);
  const Json document = parse_json(os::read_file(path), path);
  return document.is_object() && document.contains("format") && document.at("format") == "dear-pair-cluster";
}

ModelledNetwork parse_modelled_network(std::string_view text) {
  if (names_pair_cluster(text)) return find_pair_cluster(text);
  return parse_network(text);
}

const std::string& name_of(const ModelledNetwork& network) {
  return std::visit([](const auto& one) -> const std::string& { return one.name; }, network);
}

void require_ranks(const PairCluster& cluster, int ranks) {
  if (!cluster.shared_wires.empty())
    throw ConfigError(fmt::format(
        "cluster '{}' has links that share wires, which are planned for and not modelled: leave its "
        "shared_wires out",
        cluster.name));
  if (cluster.devices.size() == index_of(ranks) && ranks > 1) return;
  throw ConfigError(
      ranks == 1 ? fmt::format("one rank alone has no links, which cluster '{}' would model: start more",
                               cluster.name)
                 : fmt::format("cluster '{}' has {} and its links, and there are {} ranks: start as many "
                               "ranks, or give a cluster of {}",
                               cluster.name, counted(cluster.devices.size(), "device"), ranks, ranks));
}

void require_ranks(const ModelledNetwork& network, int ranks) {
  if (const auto* const cluster = std::get_if<PairCluster>(&network)) require_ranks(*cluster, ranks);
}

}  // namespace dear
