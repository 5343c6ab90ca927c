#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "dear/tune/expected_improvement.h"
#include "dear/tune/gaussian_process.h"
#include "dear/tune/observations.h"
#include "dear/tune/ways.h"

namespace dear::tune {
namespace {

// [Note: the model] Of the logarithm of the seconds, so that everything is relative: a factor that a prior is
// wrong by is an offset, noise is a part of the time. Without a prior a candidate is expected to take what
// the others take, and differences of a fifth are usual. With one, its logarithm is expected; the offset and
// the slope of the kernel let all of it be too low, and its differences be exaggerated, and the signal is
// what else it is wrong by. So nothing has to be standardised: logarithms of times are numbers near 1.
constexpr double kSignal = 0.2;
constexpr double kNoise = 0.015;
constexpr double kLength = 0.12;  // buckets of neighbouring sizes differ at their ends: times are jagged
constexpr double kSlope = 0.3;
constexpr double kOffset = 1;
// Of the spread of what was observed; less is no reason to try something.
constexpr double kMargin = 0.002;
// What is worth a trial, as a part of the time, and as a part of the noise of a measurement.
constexpr double kWorth = 0.003;
constexpr double kWorthOfNoise = 0.1;
// How much slower than the best a candidate is, is of no interest beyond this factor, and would let a few
// that are very slow decide on lengths.
constexpr double kSlowest = 3;

class Bayesian final : public ObservingTuner {
 public:
  Bayesian(const Candidates& candidates, const TunerOptions& options)
      : ObservingTuner(candidates, options),
        fit_{.length = kLength * std::sqrt(static_cast<double>(candidates.front().position.size())),
             .signal = options.prior.seconds.empty() ? kSignal : options.prior.error,
             .noise = kNoise,
             .offset = kOffset,
             .slope = options.prior.seconds.empty() ? 0 : kSlope} {
    const std::vector<double>& prior = options.prior.seconds;
    const double least = prior.empty() ? 1 : *std::min_element(prior.begin(), prior.end());
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const double slower = prior.empty() ? 1 : std::min(prior[i] / least, kSlowest);
      points_.push_back({.position = candidates[i].position, .expected = std::log(slower)});
    }
    // The centre tells most where nothing is known.
    first_ = prior.empty()
                 ? nearest_candidates(candidates, {std::vector<double>(points_.front().position.size(), 0.5)})
                       .front()
                 : static_cast<std::size_t>(std::min_element(prior.begin(), prior.end()) - prior.begin());
    log_scale_ = std::log(least);
    believe();
  }

  [[nodiscard]] std::optional<std::size_t> best() const override {
    std::optional<std::size_t> best;
    for (const Observation& observation : observations())
      if (!best || beliefs_[observation.candidate].mean < beliefs_[*best].mean) best = observation.candidate;
    return best;
  }

  [[nodiscard]] std::vector<Expectation> expectations() const override {
    std::vector<Expectation> all;
    for (const Belief& belief : beliefs_)
      all.push_back({.seconds = std::exp(log_scale_ + belief.mean), .deviation = belief.deviation});
    return all;
  }

 private:
  std::optional<std::size_t> choose() override {
    if (times_observed(first_) == 0) return first_;
    const std::size_t incumbent = *best();
    const double margin = kMargin * spread();
    double most = 0;
    std::size_t promising = incumbent;
    for (std::size_t i = 0; i < beliefs_.size(); ++i) {
      const double gain = expected_improvement(beliefs_[i], beliefs_[incumbent].mean, margin);
      if (gain <= most) continue;
      most = gain;
      promising = i;
    }
    if (most >= std::max(kWorth, kWorthOfNoise * noise_)) return promising;
    if (times_observed(incumbent) < 2) return incumbent;
    return std::nullopt;
  }

  void learn() override { believe(); }

  void believe() {
    std::vector<Point> points;
    std::vector<double> values;
    if (!observations().empty()) {
      const auto least =
          std::min_element(observations().begin(), observations().end(),
                           [](const Observation& a, const Observation& b) { return a.seconds < b.seconds; });
      // The factor that is common to all, roughly; the offset finds it out.
      std::vector<double> factors;
      for (const Observation& observation : observations()) {
        const double seconds = std::min(observation.seconds, kSlowest * least->seconds);
        points.push_back(points_[observation.candidate]);
        values.push_back(std::log(seconds));
        factors.push_back(values.back() - points.back().expected);
      }
      log_scale_ = median(std::move(factors));
      for (double& value : values) value -= log_scale_;
    }
    const Kernel kernel = fit_kernel(points, values, fit_);
    noise_ = kernel.noise;
    const GaussianProcess process(std::move(points), values, kernel);
    beliefs_.clear();
    for (const Point& point : points_) beliefs_.push_back(process.at(point));
  }

  [[nodiscard]] double spread() const {
    double low = 1e300;
    double high = -1e300;
    for (const Observation& observation : observations()) {
      low = std::min(low, beliefs_[observation.candidate].mean);
      high = std::max(high, beliefs_[observation.candidate].mean);
    }
    return high - low;
  }

  FitOptions fit_;
  std::vector<Point> points_;
  std::size_t first_ = 0;
  double log_scale_ = 0;
  double noise_ = 0;
  std::vector<Belief> beliefs_;
};

}  // namespace

std::unique_ptr<Tuner> make_bayesian(const Candidates& candidates, const TunerOptions& options) {
  return std::make_unique<Bayesian>(candidates, options);
}

}  // namespace dear::tune
