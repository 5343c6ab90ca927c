#pragma once

#include "studies/report/progress.h"
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dear/methods/rounds/auc.h"

// The area under the ROC curve against rounds, by CoDA (Guo et al. 2020, arXiv 2005.02426) and CODASCA (Yuan
// et al. 2021, arXiv 2102.04635), on a problem whose optimum is known.
namespace dear::studies::rounds {

using methods::rounds::Shards;

struct AreasOptions {
  methods::rounds::AucShape shape{};  // of CoDA's noisy runs; 4 clients with 500 samples each
  std::vector<std::int64_t> every{1, 8, 32, 128};
  int batch = 4;
  int seeds = 5;                         // 1 to so many: of samples and of batches
  std::int64_t steps = 4000;             // of a stage; four stages
  std::int64_t exact_steps = 1000;       // likewise, of runs with exact gradients
  std::vector<int> clients{1, 2, 4, 8};  // of the sweep of clients, which share as many samples
  int client_seeds = 20;
};

struct AreaRun {
  std::string algorithm;
  Shards shards = Shards::alike;
  std::int64_t every = 1;
  bool exact = false;  // gradients of all samples
  double rounds = 0, reals = 0;
  std::vector<double> areas{}, best_areas{};           // by seed: at the end, and at the optimum
  std::vector<double> distances{};                     // by seed: |w - w*| / |w*|
  std::vector<std::pair<double, double>> by_rounds{};  // of the first seed: rounds, AUC

  [[nodiscard]] double mean_area() const;
  [[nodiscard]] double mean_best() const;
  [[nodiscard]] double mean_distance() const;
};

// The noise that is left at the end, as a mean of squared distances over seeds.
struct NoiseRun {
  int clients = 1;
  double squared_distance = 0;
};

struct AreasFindings {
  std::vector<AreaRun> runs;
  std::vector<NoiseRun> noise;
  // ConfigError where it was not studied.
  [[nodiscard]] const AreaRun& run(const std::string& algorithm, Shards shards, std::int64_t every,
                                   bool exact) const;
};
// ConfigError for less than one seed.
AreasFindings find_areas(const AreasOptions& options, const studies::Progress& progress = {});

}  // namespace dear::studies::rounds
