#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/platform/cluster/fit_record.h"
#include "dear/platform/cluster/network.h"

namespace dear {

// How the members of one dimension reach each other.
enum class Wiring : std::uint8_t {
  ring,      // each has a link to the next and one to the previous member
  switched,  // each has a link to a switch that carries whatever its ports can
  full_mesh  // each has a link to every other
};
std::string name_of(Wiring wiring);         // "ring", "switched", "full-mesh"
Wiring find_wiring(std::string_view name);  // ConfigError that lists them all

// One level of a cluster's network. The members of the innermost are ranks; those of each further one are
// groups of the level below. It is named after what it makes of them: a node of ranks, a rail of nodes, a
// spine of pods.
struct Dimension {
  std::string name;
  int size = 1;  // members of one group
  Wiring wiring = Wiring::switched;
  // Alpha of a message that crosses this dimension, all the way from rank to rank, and beta of one link.
  Link link;
  // Links of one member into this dimension, which all ranks in the member share: 1 network card for a whole
  // node, or as many as it has ranks. In a ring or a full mesh, so many to each neighbour.
  int links = 1;
  // How many times as much all members together could send into the switch as it carries at once: 1 for a
  // switch that never blocks. At least 1; more than 1 on a switched dimension alone.
  double oversubscription = 1;
  // Whether this network lies beside those of the dimensions below: each rank has links of its own into it,
  // as it has a network card beside its NVLink, and messages along this dimension take no others. `links` is
  // then a multiple of the ranks in a member. Without it this network lies above the one below, as in a
  // tree: what crosses it also takes the links of switched dimensions below, down to the nearest dimension
  // that is beside others. The innermost dimension of several members has nothing below it either way.
  bool beside = false;
  friend bool operator==(const Dimension&, const Dimension&) = default;
};

// A rank that computes slower than the others: its times are multiplied by `slowdown`, at least 1.
struct Straggler {
  int rank = 0;
  double slowdown = 1;
  friend bool operator==(const Straggler&, const Straggler&) = default;
};

// What communication and computation take from each other on a rank that does both: processors that handle
// messages, memory bandwidth, or the multiprocessors that a GPU's collectives run on. Each takes so many
// times as long while the other goes on, at least 1.
struct Interference {
  double communication = 1;
  double computation = 1;
  friend bool operator==(const Interference&, const Interference&) = default;
};

// What the software of a rank takes, whatever the links do.
struct Software {
  // From the call of a collective to its first message: queues, agreement among ranks, kernels. Collectives
  // in flight share start-up: while messages of one set out, the next is launched; each costs what is longer.
  double launch_seconds = 0;
  // On the compute lane, before the forward of each layer: by policies that hold it there until its
  // parameters have come (Policy::holds_layers).
  double hold_seconds = 0;
  // Time for each buffer that a policy broadcasts before a forward pass (ddp), beyond that of its bytes.
  double buffer_seconds = 0;
  friend bool operator==(const Software&, const Software&) = default;
};

// The machines that a job runs on. Ranks are numbered inside out: those of a node are neighbours.
struct Cluster {
  std::string name;
  std::vector<Dimension> dimensions;  // innermost first; at least one
  std::string device{};               // as the table of devices names it; "" when nothing is known
  std::vector<Straggler> stragglers{};
  Interference interference{};
  Software software{};
  std::optional<FitRecord> fit{};  // where the innermost link comes from

  [[nodiscard]] int ranks() const;  // the product of all sizes
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// The lane of the collectives along each dimension, from 0: dimensions on different lanes share no links,
// so all lanes can be busy at once. A dimension that is beside others opens a lane; one that lies above
// others shares the lane of the next switched dimension among those whose links its messages take, and opens
// a lane where there is none (above rings and full meshes alone). So a tree of switches is one lane, and so
// is a flat cluster. A dimension of one member has no network, and stands on the lane of the one below.
std::vector<int> lanes_of(const Cluster& cluster);

// The rate at which one rank can send into a dimension while all ranks send: its part of the links of its
// member, less where a switch is oversubscribed; in a full mesh to all others together, in a ring one way
// round. Infinity for links that take no time. The dimension is one of the cluster's.
double bytes_per_second_of_rank(const Cluster& cluster, int dimension);

// Ranks on one switch that never blocks, each with a link of its own.
Cluster flat_cluster(const Network& network, int ranks);

// The first `ranks` ranks of a cluster: inner dimensions are filled first, those that hold one member alone
// fall away, and so do stragglers that are not among them. The name stays. A cluster of one dimension may
// also grow. ConfigError naming the numbers that there are for one that would leave a group partly filled, or
// that is more than the cluster has.
Cluster with_ranks(const Cluster& cluster, int ranks);

// ConfigError naming what is wrong: no dimension, a size or number of links below 1, a link that is negative
// or not finite, an oversubscription below 1 or on something else than a switch, a dimension beside others
// whose links are no multiple of the ranks in a member, a straggler that is not there,
// named twice or not slower, an interference below 1, software that takes no finite time, more than 2^30
// ranks.
void validate(const Cluster& cluster);

}  // namespace dear
