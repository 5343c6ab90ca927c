#include "studies/rounds/learning.h"

#include "studies/training/threads.h"
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::studies::rounds {

std::vector<double> Learnt::losses() const {
  std::vector<double> all;
  for (const Trained& one : by_seed) all.push_back(one.loss);
  return all;
}

double Learnt::mean_loss() const {
  double sum = 0;
  for (const Trained& one : by_seed) sum += one.loss;
  return sum / static_cast<double>(by_seed.size());
}

double Learnt::deviation() const {
  const double mean = mean_loss();
  double squares = 0;
  for (const Trained& one : by_seed) squares += std::pow(one.loss - mean, 2);
  return by_seed.size() < 2 ? 0 : std::sqrt(squares / static_cast<double>(by_seed.size() - 1));
}

const Learnt& find(const std::vector<Learnt>& all, const Lesson& lesson) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Learnt& one) { return one.lesson == lesson; });
  if (found == all.end())
    throw ConfigError(
        fmt::format("{} in {} steps was not studied: add it", name_of(lesson.exchanges), lesson.steps));
  return *found;
}

std::vector<Learnt> learn(const std::vector<Lesson>& lessons, const LearningOptions& options,
                          const studies::Progress& progress) {
  if (options.seeds < 1 || options.learning_rates.empty())
    throw ConfigError(fmt::format("{} seeds and {} step sizes train nothing: one of each at least",
                                  options.seeds, options.learning_rates.size()));
  const auto seeds = static_cast<std::size_t>(options.seeds);
  const std::size_t rates = options.learning_rates.size();
  std::vector<Trained> runs(lessons.size() * rates * seeds);
  training::for_each_in_threads(
      runs.size(),
      [&](std::size_t run) {
        const Lesson& lesson = lessons[run / seeds / rates];
        SitesOptions sites = options.sites;
        sites.apart = lesson.apart;
        sites.steps = lesson.steps;
        sites.learning_rate = options.learning_rates[run / seeds % rates];
        runs[run] = train_on_sites(sites, lesson.exchanges, run % seeds + 1);
      },
      "training", progress);
  std::vector<Learnt> all;
  for (std::size_t number = 0; number < lessons.size(); ++number) {
    Learnt best{.lesson = lessons[number]};
    double least = HUGE_VAL;
    for (std::size_t rate = 0; rate < rates; ++rate) {
      const auto first = runs.begin() + static_cast<std::ptrdiff_t>((number * rates + rate) * seeds);
      double validation = 0;
      for (auto run = first; run != first + options.seeds; ++run)
        validation += run->validation / options.seeds;
      if (rate > 0 && !(validation < least)) continue;  // a loss that is no number is less than none
      least = std::isfinite(validation) ? validation : HUGE_VAL;
      best.learning_rate = options.learning_rates[rate];
      best.by_seed.assign(first, first + options.seeds);
    }
    all.push_back(std::move(best));
  }
  return all;
}

}  // namespace dear::studies::rounds
