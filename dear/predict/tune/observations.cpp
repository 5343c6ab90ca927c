#include "dear/predict/tune/observations.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::tune {

double Expectation::low_seconds() const { return seconds * std::exp(-deviation); }
double Expectation::high_seconds() const { return seconds * std::exp(deviation); }

ObservingTuner::ObservingTuner(const Candidates& candidates, const TunerOptions& options)
    : candidates_(candidates), trials_left_(options.trials) {
  validate(candidates);
  if (options.trials < 1)
    throw ConfigError(fmt::format("{} trials are none: give at least one", options.trials));
  const std::vector<double>& prior = options.prior.seconds;
  if (!prior.empty() && prior.size() != candidates.size())
    throw ConfigError(fmt::format("a prior of {} times cannot be that of {} candidates: give one for each",
                                  prior.size(), candidates.size()));
  for (const double seconds : prior)
    if (!std::isfinite(seconds) || !(seconds > 0))
      throw ConfigError(fmt::format("a prior of {} s is no time: give finite ones above 0", seconds));
}

std::optional<std::size_t> ObservingTuner::suggest() {
  if (!chosen_) {
    suggestion_ = trials_left_ > 0 ? choose() : std::nullopt;
    chosen_ = true;
  }
  return suggestion_;
}

void ObservingTuner::observe(std::size_t candidate, double seconds) {
  if (candidate >= candidates_.size())
    throw ConfigError(fmt::format("there is no candidate {}: there are {}", candidate, candidates_.size()));
  if (!std::isfinite(seconds) || !(seconds > 0))
    throw ConfigError(fmt::format("'{}' cannot have taken {} s: observe finite times above 0",
                                  candidates_[candidate].name, seconds));
  observations_.push_back({.candidate = candidate, .seconds = seconds});
  if (chosen_ && suggestion_ == candidate) --trials_left_;
  chosen_ = false;
  learn();
}

std::optional<std::size_t> ObservingTuner::best() const {
  std::map<std::size_t, std::vector<double>> seconds;
  for (const Observation& observation : observations_)
    seconds[observation.candidate].push_back(observation.seconds);
  std::optional<std::size_t> best;
  double least = 0;
  for (const Observation& observation : observations_) {
    const double typical = median(seconds[observation.candidate]);
    if (best && typical >= least) continue;
    best = observation.candidate;
    least = typical;
  }
  return best;
}

std::size_t ObservingTuner::times_observed(std::size_t candidate) const {
  return static_cast<std::size_t>(
      std::count_if(observations_.begin(), observations_.end(),
                    [&](const Observation& observation) { return observation.candidate == candidate; }));
}

std::optional<std::size_t> ListedTuner::choose() {
  while (next_ < order_.size() && times_observed(order_[next_]) > 0) ++next_;
  return next_ < order_.size() ? std::optional(order_[next_]) : std::nullopt;
}

std::vector<std::size_t> nearest_candidates(const Candidates& candidates,
                                            const std::vector<std::vector<double>>& positions) {
  std::vector<std::size_t> chosen;
  for (const std::vector<double>& position : positions) {
    const Candidate there{.name = {}, .values = {}, .position = position};
    std::optional<std::size_t> nearest;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (std::find(chosen.begin(), chosen.end(), i) != chosen.end()) continue;
      if (!nearest || distance(candidates[i], there) < distance(candidates[*nearest], there)) nearest = i;
    }
    if (nearest) chosen.push_back(*nearest);
  }
  return chosen;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace dear::tune
