#pragma once

#include <string>
#include <vector>

namespace dear::liveness {

// How the ranks are connected: those of a host with the lowest of them, which leads it, and the leaders in a
// tree with rank 0 at its root.
struct Node {
  int parent = -1;                 // a lower rank; -1 for rank 0
  bool is_near = false;            // the parent is on this host
  std::vector<int> near{}, far{};  // children on this host, and leaders of others
};
inline constexpr int kFanOut = 16;

// The place of `rank` among ranks on these hosts, where hosts[r] names the host of rank r.
Node node_of(const std::vector<std::string>& hosts, int rank);

}  // namespace dear::liveness
