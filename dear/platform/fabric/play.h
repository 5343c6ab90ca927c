#pragma once

#include <cstdint>
#include <vector>

#include "dear/platform/algorithm/program.h"
#include "dear/platform/fabric/rounds.h"
#include "dear/platform/fabric/topology.h"

namespace dear::fabric {

struct PlayOptions {
  std::vector<int> ranks{};             // of the members; empty: rank i is member i
  std::vector<double> enter_seconds{};  // when each member begins; empty: all at 0
};

struct Played {
  double seconds = 0;               // when the last member is through
  std::vector<double> end_seconds;  // by member
  std::uint64_t messages = 0;
};

// One collective alone on a network, as Traffic has it. ConfigError for negative bytes, for ranks that are
// not there, and for options that are not as many as members.
Played play(const std::shared_ptr<const Rounds>& rounds, const Topology& topology, double bytes,
            const PlayOptions& options = {});
Played play(const algorithm::Program& program, const Topology& topology, double bytes,
            const PlayOptions& options = {});

}  // namespace dear::fabric
