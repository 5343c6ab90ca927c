#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/cluster/network.h"

namespace dear {

// How the members of one dimension reach each other.
enum class Wiring : std::uint8_t {
  ring,      // each has a link to the next and one to the previous member
  switched,  // each has a link to a switch that carries whatever its ports can
  full_mesh  // each has a link to every other
};
std::string name_of(Wiring wiring);  // "ring", "switched", "full-mesh"

// One level of a cluster's network. The members of the innermost are ranks; those of each further one are
// groups of the level below: GPUs in a node, nodes on a rail, pods on a spine.
struct Dimension {
  std::string name;
  int size = 1;  // members of one group
  Wiring wiring = Wiring::switched;
  // One link of a member: alpha of a message that crosses this dimension (from rank to rank, all of it), beta
  // of one link.
  Link link;
  // Links of one member into this dimension, shared by the ranks in it: 1 network card for a node, or as many
  // as it has ranks.
  int links = 1;
  // Of what the members' links could send into the switch, the reciprocal of the part that it carries at
  // once: 1 for one that blocks nothing. At least 1; of a switched dimension alone.
  double oversubscription = 1;
};

// A rank that computes slower than the others: its times are multiplied by `slowdown`, at least 1.
struct Straggler {
  int rank = 0;
  double slowdown = 1;
};

// The machines that a job runs on. Ranks are numbered inside out: those of a node are neighbours.
struct Cluster {
  std::string name;
  std::vector<Dimension> dimensions;  // innermost first; at least one
  std::string device{};               // as the table of devices names it; "" when nothing is known
  std::vector<Straggler> stragglers{};

  [[nodiscard]] int ranks() const;  // the product of all sizes
};

// ConfigError naming what is wrong: no dimension, a size or number of links below 1, a link that is negative
// or not finite, an oversubscription below 1 or on something else than a switch, a straggler that is not
// there or not slower, more than 2^30 ranks.
void validate(const Cluster& cluster);

}  // namespace dear
