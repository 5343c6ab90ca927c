#pragma once

#include <cstdint>
#include <string_view>

namespace dear::sim {

// Where the ranks of several jobs are on a cluster.
enum class Placement : std::uint8_t {
  packed,  // each job on neighbouring ranks, so that jobs share what is far out alone
  spread   // ranks dealt out one by one, so that jobs share nodes and their network cards
};
std::string_view name_of(Placement placement);     // "packed", "spread"
Placement parse_placement(std::string_view text);  // ConfigError that lists them

// Equal jobs that share a cluster. Member i of a job is its i-th rank.
struct Jobs {
  int count = 1;
  Placement placement = Placement::spread;

  [[nodiscard]] int job_of(int rank, int ranks) const {
    return placement == Placement::spread ? rank % count : rank / (ranks / count);
  }
  [[nodiscard]] int member_of(int rank, int ranks) const {
    return placement == Placement::spread ? rank / count : rank % (ranks / count);
  }
  [[nodiscard]] int rank_of(int job, int member, int ranks) const {
    return placement == Placement::spread ? member * count + job : job * (ranks / count) + member;
  }
};

}  // namespace dear::sim
