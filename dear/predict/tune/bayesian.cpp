#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "dear/predict/tune/expected_improvement.h"
#include "dear/predict/tune/gaussian_process.h"
#include "dear/predict/tune/observations.h"
#include "dear/predict/tune/ways.h"

namespace dear::tune {
namespace {

// [Note: the model] The process models the logarithm of the seconds, so that everything is relative: a factor
// by which a prior is wrong is an offset, and noise is a part of the time. Without a prior a candidate is
// expected to take the time of the others, and differences of a fifth are usual. With a prior, its logarithm
// is the expected value. The kernel's offset and slope let a prior be too low everywhere and exaggerate
// differences, and the signal stands for all other errors of it. Nothing has to be standardised, because
// logarithms of times are numbers near 1.
constexpr double kSignal = 0.2;
constexpr double kNoise = 0.015;
constexpr double kLength = 0.12;  // short, since times jump where buckets of neighbouring sizes differ
constexpr double kSlope = 0.3;
constexpr double kOffset = 1;

// The margin of the expected improvement, as a part of the spread of the observations: a smaller gain is no
// reason for a trial.
constexpr double kMargin = 0.002;
// The least expected improvement that is worth a trial: a part of the time, and a part of the noise of a
// measurement.
constexpr double kWorth = 0.003;
constexpr double kWorthOfNoise = 0.1;
// Times are cut at this multiple of the best: how slow a slow candidate is matters to nobody, and a few very
// slow candidates would decide on the lengths of the kernel.
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
    // Without a prior the first trial is in the centre, where it tells most of the other candidates.
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
      // A rough value of the factor that all candidates have in common; the kernel's offset learns the rest.
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
