#pragma once

#include "studies/homomorphic/recommender.h"
#include "studies/report/progress.h"
#include "studies/training/method.h"
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dear::studies::homomorphic {

using training::Method;
using training::name_of;

struct LearningOptions {
  RecommenderShape model{};
  int workers = 4;
  int batch = 64;  // of each worker
  int steps = 400;
  int seeds = 5;         // 1 to so many, each of opinions, initial parameters, batches and what is drawn
  int held_back = 8192;  // ratings by which learning rates are chosen, and as many for the test
  std::vector<double> learning_rates{};
};

// One training by SGD without momentum: all workers in one thread.
struct Learned {
  std::vector<double> losses;       // of each step, the mean of the workers' batches before the update
  double validation = 0, test = 0;  // loss at the end
  double bytes = 0;                 // that a worker sends in a step, the mean of all steps
  bool diverged = false;
};
Learned learn(const LearningOptions& options, const Method& method, double learning_rate, std::uint64_t seed);

struct LearnedAtRate {
  double learning_rate = 0;
  std::vector<Learned> by_seed;

  [[nodiscard]] double mean_validation() const;
  [[nodiscard]] double mean_test() const;
  [[nodiscard]] double deviation() const;  // of the losses of the test over the seeds; 0 of one
  [[nodiscard]] double mean_bytes() const;
  [[nodiscard]] std::vector<double> tests() const;  // losses by seed
};

struct MethodLearned {
  Method method;
  std::vector<LearnedAtRate> rates;  // as in the options
  std::size_t best = 0;              // of `rates`, by validation

  [[nodiscard]] const LearnedAtRate& at_best() const { return rates[best]; }
};

// Every method with every learning rate and seed, spread over threads; the same whatever their number.
std::vector<MethodLearned> search_learning_rates(const std::vector<Method>& methods,
                                                 const LearningOptions& options,
                                                 const studies::Progress& progress = {});

// The largest difference of two curves of the loss within the first steps.
double apart(const Learned& one, const Learned& other, int steps);

}  // namespace dear::studies::homomorphic
