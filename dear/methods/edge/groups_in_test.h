#pragma once

#include <cmath>
#include <random>
#include <string>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/edge/paba.h"

// Several tests of learning at the edge share these.
namespace dear::methods::edge::testing {

// Workers whose speeds and channels differ by a factor of ten.
inline PabaProblem random_problem(int groups, int workers, std::uint32_t seed, double overhead = 0) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  PabaProblem problem{
      .groups = {}, .parameters = 1'000'000, .bandwidth_down_hz = 1e7, .bandwidth_up_hz = 4e6};
  for (int group = 0; group < groups; ++group) {
    std::vector<Worker>& all = problem.groups.emplace_back();
    for (int worker = 0; worker < workers; ++worker)
      all.push_back({.cycles_per_parameter = 200 + 1800 * unit(random),
                     .frequency_hz = 1e8 + 9e8 * unit(random),
                     .efficiency_down = 1 + 9 * unit(random),
                     .efficiency_up = 0.5 + 5 * unit(random),
                     .overhead_seconds = overhead * unit(random)});
  }
  return problem;
}

// The message of the ConfigError that `act` throws.
template <typename Act>
std::string refusal(const Act& act) {
  try {
    act();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace dear::methods::edge::testing
