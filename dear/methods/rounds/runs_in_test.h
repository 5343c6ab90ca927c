#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/single.h"
#include "dear/methods/rounds/rounds.h"

// Several tests of rounds share these runs.
namespace dear::methods::rounds::testing {

inline Group alone() { return {comm::make_single(), {}}; }

inline Settings settings_of(std::string_view algorithm, const Problem& problem, Settings settings = {}) {
  settings.algorithm = &find_algorithm(algorithm);
  return completed(settings, problem);
}

// The models after each of so many rounds, on one rank.
inline std::vector<std::vector<double>> models_of(const Problem& problem, const Settings& settings,
                                                  int rounds) {
  Rounds run(alone(), problem, settings);
  std::vector<std::vector<double>> models;
  for (int round = 0; round < rounds && run.next(); ++round)
    models.emplace_back(run.model().begin(), run.model().end());
  return models;
}

// The message of the E that `act` throws.
template <typename E, typename Act>
std::string refusal(const Act& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace dear::methods::rounds::testing
