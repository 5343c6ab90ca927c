#include "dear/platform/fabric/topology.h"

#include <limits>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::fabric {
namespace {

constexpr std::int64_t kMostLinks = std::int64_t{1} << 31;

// Those of a member that messages see: the links that a rank has for itself are one.
int links_seen(const Dimension& dimension, int ranks_of_member) {
  return dimension.beside || ranks_of_member == 1 ? ranks_of_member : dimension.links;
}

}  // namespace

Topology::Topology(const Cluster& cluster) : ranks_(cluster.ranks()) {
  validate(cluster);
  std::int64_t first = 0;
  int ranks_per_member = 1;
  for (const Dimension& dimension : cluster.dimensions) {
    const auto& [alpha, beta] = dimension.link;
    const int links = links_seen(dimension, ranks_per_member);
    const double capacity =
        beta > 0 ? dimension.links / (beta * links) : std::numeric_limits<double>::infinity();
    const int groups = ranks_ / ranks_per_member / dimension.size;
    const std::int64_t peers = dimension.wiring == Wiring::full_mesh ? dimension.size : 2;
    const std::int64_t first_core = first + peers * links * groups * dimension.size;
    const bool blocks = dimension.oversubscription > 1;
    if (first_core + groups > kMostLinks)
      throw ConfigError(
          fmt::format("dimension '{}' of cluster '{}' makes more than {} links: wire it with switches",
                      dimension.name, cluster.name, kMostLinks));
    if (dimension.size > 1) {
      levels_.push_back(
          {.wiring = dimension.wiring,
           .size = dimension.size,
           .ranks_per_member = ranks_per_member,
           .links = links,
           .beside = dimension.beside,
           .alpha_seconds = alpha,
           .capacity = capacity,
           .core_capacity = blocks ? capacity * dimension.size * links / dimension.oversubscription : 0,
           .first = static_cast<LinkId>(first),
           .first_core = static_cast<LinkId>(first_core)});
      first = first_core + (blocks ? groups : 0);
    }
    ranks_per_member *= dimension.size;
  }
  links_ = static_cast<LinkId>(first);
}

std::vector<double> Topology::capacities() const {
  std::vector<double> all(links_);
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const Level& level = levels_[i];
    const LinkId end = i + 1 < levels_.size() ? levels_[i + 1].first : links_;
    std::fill(all.begin() + level.first, all.begin() + level.first_core, level.capacity);
    std::fill(all.begin() + level.first_core, all.begin() + end, level.core_capacity);
  }
  return all;
}

std::size_t Topology::outermost_crossed(int from, int to) const {
  std::size_t outermost = levels_.size() - 1;
  while (levels_[outermost].member(from) == levels_[outermost].member(to)) --outermost;
  return outermost;
}

double Topology::latency_seconds(int from, int to) const {
  return from == to ? 0 : levels_[outermost_crossed(from, to)].alpha_seconds;
}

void Topology::route(int from, int to, Route& into) const {
  into.links.clear();
  into.latency_seconds = 0;
  if (from == to) return;
  const std::size_t outermost = outermost_crossed(from, to);
  into.latency_seconds = levels_[outermost].alpha_seconds;
  int at = from;
  for (std::size_t begin = 0, end = 0; begin <= outermost; begin = end) {
    for (end = begin + 1; end < levels_.size() && !levels_[end].beside;) ++end;
    const int inside = levels_[begin].ranks_per_member;
    const int all = levels_[end - 1].ranks_per_member * levels_[end - 1].size;
    const int next = at + (to % all / inside - at % all / inside) * inside;
    if (next != at) route_within(begin, end, at, next, into.links);
    at = next;
  }
}

void Topology::route_within(std::size_t begin, std::size_t end, int from, int to,
                            std::vector<LinkId>& links_used) const {
  std::size_t outermost = end - 1;
  while (levels_[outermost].member(from) == levels_[outermost].member(to)) --outermost;
  int at = from;
  for (std::size_t i = begin; i <= outermost; ++i) {
    const Level& level = levels_[i];
    if (level.wiring == Wiring::switched) {
      level.up(at, links_used);
      level.core(at, links_used);
    } else {
      at = level.walk(at, to, links_used);
    }
  }
  for (std::size_t i = outermost + 1; i-- > begin;) {
    const Level& level = levels_[i];
    if (level.wiring != Wiring::switched) continue;
    if (i < outermost) level.core(to, links_used);
    level.down(to, links_used);
  }
}

Route Topology::route(int from, int to) const {
  Route found;
  route(from, to, found);
  return found;
}

void Topology::Level::up(int rank, std::vector<LinkId>& links_used) const {
  if (!carries_all()) links_used.push_back(first + 2 * port(member(rank), rank));
}

void Topology::Level::down(int rank, std::vector<LinkId>& links_used) const {
  if (!carries_all()) links_used.push_back(first + 2 * port(member(rank), rank) + 1);
}

void Topology::Level::core(int rank, std::vector<LinkId>& links_used) const {
  if (core_capacity > 0 && !carries_all())
    links_used.push_back(first_core + static_cast<LinkId>(member(rank) / size));
}

int Topology::Level::walk(int rank, int to, std::vector<LinkId>& links_used) const {
  const int from_number = member(rank) % size;
  const int to_number = member(to) % size;
  const int first_of_group = member(rank) - from_number;
  const int arrival = rank + (to_number - from_number) * ranks_per_member;
  if (carries_all()) return arrival;
  if (wiring == Wiring::full_mesh) {
    const auto pair =
        static_cast<LinkId>(member(rank)) * static_cast<LinkId>(size) + static_cast<LinkId>(to_number);
    if (from_number != to_number)
      links_used.push_back(first + pair * static_cast<LinkId>(links) +
                           static_cast<LinkId>(rank % ranks_per_member % links));
    return arrival;
  }
  const int ahead = (to_number - from_number + size) % size;
  const bool forward = ahead <= size - ahead;
  for (int number = from_number; number != to_number; number = (number + (forward ? 1 : size - 1)) % size)
    links_used.push_back(first + 2 * port(first_of_group + number, rank) + (forward ? 0 : 1));
  return arrival;
}

}  // namespace dear::fabric
