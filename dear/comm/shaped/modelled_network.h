#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "dear/platform/cluster/network.h"
#include "dear/platform/cluster/pair_cluster.h"

namespace dear {

// A network whose times collectives can take: links that are all alike, or one for each ordered pair of
// ranks.
using ModelledNetwork = std::variant<Network, PairCluster>;

// Parses what parse_network() takes, or a cluster with a link for each pair: a preset's name (sites.h) or the
// path of its file. ConfigError as there.
ModelledNetwork parse_modelled_network(std::string_view text);
// Whether the text names such a cluster. ConfigError for a file that cannot be read or is no JSON.
bool names_pair_cluster(std::string_view text);

const std::string& name_of(const ModelledNetwork& network);

// ConfigError where ranks and devices of a cluster differ in number, or where one rank alone has no links.
void require_ranks(const PairCluster& cluster, int ranks);
void require_ranks(const ModelledNetwork& network, int ranks);

}  // namespace dear
