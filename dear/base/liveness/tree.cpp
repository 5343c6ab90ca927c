#include "dear/base/liveness/tree.h"

#include <algorithm>
#include <map>

namespace dear::liveness {

Node node_of(const std::vector<std::string>& hosts, int rank) {
  std::map<std::string, int> leader_of;
  std::vector<int> leaders;
  Node node;
  for (int one = 0; std::cmp_less(one, hosts.size()); ++one) {
    const auto [at, is_new] = leader_of.try_emplace(hosts[static_cast<std::size_t>(one)], one);
    if (is_new) leaders.push_back(one);
    if (!is_new && at->second == rank) node.near.push_back(one);
  }
  const int leader = leader_of.at(hosts[static_cast<std::size_t>(rank)]);
  if (leader != rank) {
    node.parent = leader;
    node.is_near = true;
    return node;
  }
  const auto place = static_cast<int>(std::find(leaders.begin(), leaders.end(), rank) - leaders.begin());
  if (place > 0) node.parent = leaders[static_cast<std::size_t>((place - 1) / kFanOut)];
  for (int child = kFanOut * place + 1;
       child <= kFanOut * (place + 1) && std::cmp_less(child, leaders.size()); ++child)
    node.far.push_back(leaders[static_cast<std::size_t>(child)]);
  return node;
}

}  // namespace dear::liveness
