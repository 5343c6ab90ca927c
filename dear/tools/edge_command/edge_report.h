#pragma once

#include <string>
#include <vector>

#include "dear/methods/edge/edge_run.h"

namespace dear::edge_command {

struct EdgeRun {
  methods::edge::EdgeSettings settings;
  std::vector<methods::edge::EdgeRound> rounds;
};
struct EdgeReport {
  std::string problem;  // in words
  std::vector<EdgeRun> runs;
  std::uint64_t seed = 1;
};

// "bc-bn2", "random, qsgd": the scheduler and the aggregator, where they differ among runs.
std::string name_of(const EdgeReport& report, const EdgeRun& run);
// A line for each run: at its end, and when it reached an accuracy that all reached.
std::string to_text(const EdgeReport& report);
std::string to_json(const EdgeReport& report);
std::string to_csv(const EdgeReport& report);
// Accuracy and loss against virtual time, as SVG.
std::string plot_of(const EdgeReport& report);

}  // namespace dear::edge_command
