#include "studies/sparse/accuracy.h"

#include "studies/training/threads.h"
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace dear::studies::sparse {
namespace {

double mean_of(const std::vector<TrainedAccuracy>& runs, double TrainedAccuracy::* accuracy) {
  double sum = 0;
  for (const TrainedAccuracy& run : runs) sum += run.*accuracy;
  return sum / static_cast<double>(runs.size());
}

}  // namespace

double AccuracyAtRate::mean_validation() const { return mean_of(by_seed, &TrainedAccuracy::validation); }
double AccuracyAtRate::mean_test() const { return mean_of(by_seed, &TrainedAccuracy::test); }
double AccuracyAtRate::deviation() const {
  if (by_seed.size() < 2) return 0;
  const double mean = mean_test();
  double squares = 0;
  for (const TrainedAccuracy& run : by_seed) squares += (run.test - mean) * (run.test - mean);
  return std::sqrt(squares / static_cast<double>(by_seed.size() - 1));
}

std::vector<double> AccuracyAtRate::tests() const {
  std::vector<double> accuracies;
  for (const TrainedAccuracy& run : by_seed) accuracies.push_back(run.test);
  return accuracies;
}

std::string name_of(const Setting& setting) {
  std::string name = name_of(setting.method);
  if (setting.optimiser.nesterov) name += " + Nesterov after";
  if (setting.optimiser.decay > 0) name += fmt::format(" + decay={} after", setting.optimiser.decay);
  return name;
}

std::vector<MethodAccuracy> search_learning_rates(const std::vector<Setting>& settings,
                                                  const AccuracyOptions& options,
                                                  const studies::Progress& progress) {
  const auto seeds = static_cast<std::size_t>(options.seeds);
  const std::size_t rates = options.learning_rates.size();
  std::vector<Task> tasks(seeds);
  training::for_each_in_threads(seeds, [&](std::size_t i) { tasks[i] = make_task(options.task, i + 1); });
  std::vector<MethodAccuracy> results;
  for (const Setting& setting : settings) {
    results.push_back({.setting = setting, .rates = {}});
    for (const double rate : options.learning_rates)
      results.back().rates.push_back({.learning_rate = rate, .by_seed = std::vector<TrainedAccuracy>(seeds)});
  }
  const auto train_one = [&](std::size_t run) {
    const std::size_t seed = run % seeds;
    MethodAccuracy& method = results[run / seeds / rates];
    AccuracyAtRate& at_rate = method.rates[run / seeds % rates];
    at_rate.by_seed[seed] = train(tasks[seed], method.setting.method,
                                  {.learning_rate = at_rate.learning_rate,
                                   .optimiser = method.setting.optimiser,
                                   .steps = options.steps,
                                   .batch = options.batch,
                                   .seed = seed + 1});
  };
  training::for_each_in_threads(settings.size() * rates * seeds, train_one, "training", progress);
  for (MethodAccuracy& result : results) {
    const auto best = std::max_element(result.rates.begin(), result.rates.end(),
                                       [](const AccuracyAtRate& one, const AccuracyAtRate& other) {
                                         return one.mean_validation() < other.mean_validation();
                                       });
    result.best = static_cast<std::size_t>(best - result.rates.begin());
  }
  return results;
}

}  // namespace dear::studies::sparse
