#pragma once

#include "studies/report/progress.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dear/methods/rounds/logistic.h"
#include "dear/methods/rounds/run.h"

// Reals that are sent until the minimum of a known problem is found, by every algorithm for minima, and rates
// of convergence beside those that are proven.
namespace dear::studies::rounds {

using methods::rounds::Counts;
using methods::rounds::End;
using methods::rounds::LogisticShape;

struct MinimaOptions {
  LogisticShape small{.clients = 20, .dimension = 60, .rows = 10, .condition = 1000};
  std::vector<LogisticShape> large{{.dimension = 100}, {.dimension = 300}};  // 100 clients, kappa 10,000
  std::vector<int> large_owners{10, 4, 2};
  int large_cohort = 20;
  std::vector<double> conditions{100, 1000, 10'000, 100'000};
  std::vector<int> cohorts{10, 20, 50, 100};  // of the first large problem
  std::vector<int> owners{2, 3, 4, 6, 10, 20};
  int draws = 5;               // seeds of masks and coins, of the sweep of owners
  double absence = 0.1;        // of a client that was drawn
  double error = 1e-8;         // squared distance to the optimum, beside that of the start
  double small_error = 1e-12;  // of the sweep of owners
  int rate_runs = 200, rate_rounds = 60;
};

// Names a run, within a part of the study.
struct MinimumRun {
  std::string part;  // "methods", "large", "condition", "cohort", "owners"
  std::string algorithm;
  LogisticShape problem{};
  int cohort = 0, owners = 0;
  double absence = 0;
  double steps_a_round = 1;             // the mean
  double rounds = 0, up = 0, down = 0;  // means over draws
  double error = 0, control_sum = 0;
  End end = End::ended;
  std::vector<std::pair<double, double>> by_reals{};  // sent up, error

  [[nodiscard]] double sent(double alpha) const { return up + alpha * down; }
};

// The rate at which the mean of Psi shrinks in a round, by theory and as seen: logarithms, positive where it
// shrinks.
struct RateRun {
  int clients = 0, cohort = 0, owners = 0;
  double probability = 0;     // 0: that of theory
  double of_largest_chi = 1;  // chi, in parts of the largest that is proven
  double promised = 0, seen = 0;
};

struct MinimaFindings {
  std::vector<MinimumRun> runs;
  std::vector<RateRun> rates;        // with the largest chi that is proven
  std::vector<RateRun> beyond;       // with larger ones
  std::vector<RateRun> of_a_cohort;  // with the bound that counts the cohort alone

  [[nodiscard]] std::vector<const MinimumRun*> part(std::string_view name) const;
};
MinimaFindings find_minima(const MinimaOptions& options, const studies::Progress& progress = {});

}  // namespace dear::studies::rounds
