#pragma once

#include <cstdint>
#include <vector>

#include "dear/platform/cluster/cluster.h"

// Networks in which messages share links: a cluster as links and routes, flows on them, collectives made of
// flows.
namespace dear::fabric {

using LinkId = std::uint32_t;

// The way of a message: after the latency its bytes flow over all links at once.
struct Route {
  std::vector<LinkId> links;  // none twice; without those that carry any rate
  double latency_seconds = 0;
};

// The directed links of a cluster, and the ways between its ranks. Routes are computed when they are asked
// for, so 10^5 ranks cost no more than their links.
//
// - switched: a link up and one down for each of a member's links. What an oversubscribed switch carries, it
// carries
//   over one more link, as fast as all links up together over the oversubscription.
// - ring: links to the next and to the previous member; the shorter way, to the next if both are as long.
// - full mesh: a link to each other member, or as many as `links` says.
//
// A rank uses the link of its member with its number within the member, modulo their number; those that it
// has for itself it uses all at once. A message goes as far out as it must. Below that it takes the links up
// and down of switched dimensions, as in a tree; in others it goes first to the member that has the number of
// its destination, as in a torus. A dimension beside others begins a network of its own with those above it:
// a message goes through one such network after the other, the innermost first, in each to the rank that has
// the numbers of its destination there (as NCCL's PXN does over NVLink), and takes no links of one in which
// they differ in nothing. Its latency is the alpha of the outermost dimension that it crosses. A dimension of
// one member has no network.
class Topology {
 public:
  // ConfigError as validate(cluster), and for more than 2^31 links.
  explicit Topology(const Cluster& cluster);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] std::vector<double> capacities()
      const;  // bytes per second, by LinkId; infinity where beta is 0

  // Between two ranks that are there; nothing from a rank to itself.
  [[nodiscard]] double latency_seconds(int from, int to) const;
  void route(int from, int to, Route& into) const;  // keeps the memory of `into`
  [[nodiscard]] Route route(int from, int to) const;

 private:
  struct Level {
    Wiring wiring = Wiring::switched;
    int size = 1;
    int ranks_per_member = 1;
    int links = 1;
    bool beside = false;
    double alpha_seconds = 0;
    double capacity = 0;       // of a link, or of all that a rank has for itself
    double core_capacity = 0;  // of an oversubscribed switch, else 0
    LinkId first = 0;          // links of members, then cores
    LinkId first_core = 0;

    [[nodiscard]] int member(int rank) const { return rank / ranks_per_member; }  // among those of all groups
    [[nodiscard]] LinkId port(int member, int rank) const {
      return static_cast<LinkId>(member) * static_cast<LinkId>(links) +
             static_cast<LinkId>(rank % ranks_per_member % links);
    }
    [[nodiscard]] bool carries_all() const { return capacity > 1e300; }

    void up(int rank, std::vector<LinkId>& links_used) const;    // of a switched level
    void down(int rank, std::vector<LinkId>& links_used) const;  // likewise
    void core(int rank, std::vector<LinkId>& links_used) const;  // of the rank's group, if there is one
    // From the member of `rank` to the one with the number of `to`'s, on a ring or mesh; returns the rank
    // there.
    int walk(int rank, int to, std::vector<LinkId>& links_used) const;
  };
  [[nodiscard]] std::size_t outermost_crossed(int from, int to) const;
  // Through levels [begin, end) alone; the ranks differ in nothing else.
  void route_within(std::size_t begin, std::size_t end, int from, int to,
                    std::vector<LinkId>& links_used) const;

  int ranks_ = 1;
  LinkId links_ = 0;
  std::vector<Level> levels_;  // innermost first; those of one member left out
};

}  // namespace dear::fabric
