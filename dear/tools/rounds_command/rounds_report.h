#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/methods/rounds/run.h"

namespace dear::rounds_command {

// What an algorithm did, as rank 0 knows it.
struct RoundsRun {
  methods::rounds::Settings settings;
  methods::rounds::Outcome outcome;
  double seconds = 0;
  std::optional<double> auc{};
};

struct RoundsReport {
  std::string problem;  // in words
  std::int64_t clients = 1, dimension = 1;
  std::vector<RoundsRun> runs;
  double alpha = 0;  // what a real sent down costs
  std::uint64_t seed = 1;
  std::optional<double> best_auc{};  // at the optimum
  int ranks = 1;
  std::string description;       // of the group
  std::string modelled_network;  // "" when real
};

// A line for each algorithm, beside the first of them.
std::string to_text(const RoundsReport& report);
std::string to_json(const RoundsReport& report);
// The error against the reals that a client has sent, as SVG.
std::string plot_of(const RoundsReport& report);

}  // namespace dear::rounds_command
