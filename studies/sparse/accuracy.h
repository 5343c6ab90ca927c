#pragma once

#include "studies/report/progress.h"
#include "studies/sparse/task.h"
#include "studies/sparse/training.h"
#include <cstddef>
#include <string>
#include <vector>

namespace dear::studies::sparse {

// How gradients travel, and what becomes of their mean.
struct Setting {
  Method method{};
  Optimiser optimiser{};
};
std::string name_of(const Setting& setting);  // "top-k:0.01,ef", "dense + Nesterov after"

struct AccuracyOptions {
  TaskShape task{};
  int steps = 800;
  int batch = 32;  // of each worker
  int seeds = 10;  // 1 to so many, each of a task, its initial parameters, batches and what is drawn
  std::vector<double> learning_rates = {0.3, 0.1, 0.03, 0.01, 0.003, 0.001};
};

// A method with one learning rate, by seed.
struct AccuracyAtRate {
  double learning_rate = 0;
  std::vector<TrainedAccuracy> by_seed;

  [[nodiscard]] double mean_validation() const;
  [[nodiscard]] double mean_test() const;
  [[nodiscard]] double deviation() const;           // of the test's accuracies over the seeds; 0 of one
  [[nodiscard]] std::vector<double> tests() const;  // by seed
};

struct MethodAccuracy {
  Setting setting;
  std::vector<AccuracyAtRate> rates;  // as in the options
  std::size_t best = 0;               // of `rates`, by validation

  [[nodiscard]] const AccuracyAtRate& at_best() const { return rates[best]; }
};

// Every setting with every learning rate and seed, spread over threads; the same whatever their number.
std::vector<MethodAccuracy> search_learning_rates(const std::vector<Setting>& settings,
                                                  const AccuracyOptions& options,
                                                  const studies::Progress& progress = {});

}  // namespace dear::studies::sparse
