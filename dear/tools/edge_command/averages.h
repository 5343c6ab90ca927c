#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/methods/edge/gossip.h"

namespace dear::edge_command {

// Options of `dear edge average`, as typed.
struct AverageOptions {
  std::vector<std::string> methods;
  std::string graph = "ring", timeout = "120s", json;
  std::int64_t ranks = 6, rounds = 10, elements = 10'000, intra_rounds = 2;
  std::optional<std::int64_t> cells;
  double density = 0.4;
  std::uint64_t seed = 1;
};
struct AverageSettings {
  std::vector<std::string> methods;
  int ranks = 1, cells = 1;
  std::int64_t rounds = 1, elements = 1, intra_rounds = 0;
  methods::edge::Weights weights;  // of gossip
  std::uint64_t seed = 1;
};
AverageSettings check(const AverageOptions& options);

struct Averaged {
  std::string method;
  double most = 0;           // what a round leaves of the disagreement, at most; 0 where nothing bounds it
  std::vector<double> left;  // by round, of the disagreement at the start
  double seconds = 0;        // of a round, the median, of the slowest rank
  double difference = 0;     // from the same rounds in one process, the largest of an element
};
// On all ranks of a group, which call it alike.
Averaged average(const AverageSettings& settings, const std::string& method, const Group& group);

std::string to_text(const AverageSettings& settings, const std::vector<Averaged>& all);
std::string to_json(const std::vector<Averaged>& all);
// Error where one is not what one process makes of the vectors.
void require_averages(const std::vector<Averaged>& all);

}  // namespace dear::edge_command
