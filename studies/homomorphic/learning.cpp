#include "studies/homomorphic/learning.h"

#include "studies/training/averaging.h"
#include "studies/training/threads.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace dear::studies::homomorphic {
namespace {

// Workers beyond those that train draw what is held back.
constexpr int kValidation = 1 << 20;
constexpr int kTest = kValidation + 1;

template <class Number>
double mean_of(const std::vector<Learned>& runs, const Number& number) {
  double sum = 0;
  for (const Learned& run : runs) sum += number(run);
  return sum / static_cast<double>(runs.size());
}

}  // namespace

double LearnedAtRate::mean_validation() const {
  return mean_of(by_seed, [](const Learned& run) { return run.validation; });
}
double LearnedAtRate::mean_test() const {
  return mean_of(by_seed, [](const Learned& run) { return run.test; });
}
double LearnedAtRate::mean_bytes() const {
  return mean_of(by_seed, [](const Learned& run) { return run.bytes; });
}
std::vector<double> LearnedAtRate::tests() const {
  std::vector<double> losses;
  for (const Learned& run : by_seed) losses.push_back(run.test);
  return losses;
}
double LearnedAtRate::deviation() const {
  if (by_seed.size() < 2) return 0;
  const double mean = mean_test();
  const double squares =
      mean_of(by_seed, [&](const Learned& run) { return (run.test - mean) * (run.test - mean); });
  const auto count = static_cast<double>(by_seed.size());
  return std::sqrt(squares * count / (count - 1));
}

Learned learn(const LearningOptions& options, const Method& method, double learning_rate,
              std::uint64_t seed) {
  const auto workers = static_cast<std::size_t>(options.workers);
  const std::unique_ptr<training::Averaging> averaging =
      training::make_averaging(options.model.tensors(), workers, method, seed);
  const Opinions opinions(options.model, seed);
  Recommender recommender(options.model);
  std::vector<float> parameters = initial_parameters(options.model, seed), mean(parameters.size());
  std::vector<std::vector<float>> gradients(workers, std::vector<float>(parameters.size()));
  Ratings ratings;
  Learned learned;
  const auto rate = static_cast<float>(learning_rate);
  for (int step = 0; step < options.steps && !learned.diverged; ++step) {
    double loss = 0;
    for (std::size_t worker = 0; worker < workers; ++worker) {
      opinions.draw(step, static_cast<int>(worker), options.batch, ratings);
      loss += recommender.loss_and_gradient(parameters, ratings, gradients[worker]);
    }
    learned.losses.push_back(loss / static_cast<double>(workers));
    learned.diverged = !std::isfinite(loss);
    learned.bytes += averaging->average(gradients, parameters, step, mean);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= rate * mean[i];
  }
  learned.bytes /= static_cast<double>(std::max<std::size_t>(1, learned.losses.size()));
  const auto held_back = [&](int worker) {
    opinions.draw(0, worker, options.held_back, ratings);
    const double loss = recommender.loss(parameters, ratings);
    return std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
  };
  learned.validation = held_back(kValidation);
  learned.test = held_back(kTest);
  return learned;
}

std::vector<MethodLearned> search_learning_rates(const std::vector<Method>& methods,
                                                 const LearningOptions& options,
                                                 const studies::Progress& progress) {
  const auto seeds = static_cast<std::size_t>(options.seeds);
  const std::size_t rates = options.learning_rates.size();
  std::vector<MethodLearned> results;
  for (const Method& method : methods) {
    results.push_back({.method = method, .rates = {}});
    for (const double rate : options.learning_rates)
      results.back().rates.push_back({.learning_rate = rate, .by_seed = std::vector<Learned>(seeds)});
  }
  const auto learn_one = [&](std::size_t run) {
    const std::size_t seed = run % seeds;
    MethodLearned& method = results[run / seeds / rates];
    LearnedAtRate& at_rate = method.rates[run / seeds % rates];
    at_rate.by_seed[seed] = learn(options, method.method, at_rate.learning_rate, seed + 1);
  };
  training::for_each_in_threads(methods.size() * rates * seeds, learn_one, "training", progress);
  for (MethodLearned& result : results) {
    const auto best = std::min_element(result.rates.begin(), result.rates.end(),
                                       [](const LearnedAtRate& one, const LearnedAtRate& other) {
                                         return one.mean_validation() < other.mean_validation();
                                       });
    result.best = static_cast<std::size_t>(best - result.rates.begin());
  }
  return results;
}

double apart(const Learned& one, const Learned& other, int steps) {
  const std::size_t both =
      std::min({one.losses.size(), other.losses.size(), static_cast<std::size_t>(steps)});
  double most = both < static_cast<std::size_t>(steps) ? std::numeric_limits<double>::infinity() : 0;
  for (std::size_t i = 0; i < both; ++i) most = std::max(most, std::abs(one.losses[i] - other.losses[i]));
  return most;
}

}  // namespace dear::studies::homomorphic
