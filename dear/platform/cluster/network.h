#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dear {

// A link as the alpha-beta model sees it (Hockney 1994, doi:10.1016/S0167-8191(06)80021-9): a message of m
// bytes takes alpha + m * beta seconds; both directions carry at once.
struct Link {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

// A flat network: every rank has one such link, and no two ranks share one.
struct Network {
  std::string name;  // a preset's or a cluster's, or the text that described it
  Link link;
};

struct NetworkPreset {
  std::string_view name;
  std::string_view summary;  // one line, with the source of its numbers
  Link link;
};
const std::vector<NetworkPreset>& network_presets();

// "1gbit", "10gbe", "100gbib", "bandwidth=1gbit,latency=50us" (both keys required, in either order), or the
// path of a cluster file (cluster_file.h) with ranks on one switch. ConfigError naming the part that is wrong
// and the presets there are.
Network parse_network(std::string_view text);

}  // namespace dear
