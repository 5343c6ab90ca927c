#include "bench/tuning/rivals.h"
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/tune/expected_improvement.h"
#include "dear/predict/tune/gaussian_process.h"
#include "dear/predict/tune/observations.h"

namespace dear::bench {
namespace {

using namespace tune;  // NOLINT(google-build-using-namespace): a rival is written as the tuners there

constexpr double kMegabyte = 1e6;
constexpr double kLow = 1;  // all three in MB
constexpr double kHigh = 100;
constexpr double kStart = 25;
constexpr double kStep = 0.25;  // it chooses among all real numbers
constexpr double kXiSeconds = 0.1;

// Works on sizes as they are, in MB on a linear scale, and on seconds. What it learns of a size it does not
// know to be true of others that give the same buckets, so trials may repeat each other.
class Reference final : public ObservingTuner {
 public:
  Reference(const Candidates& candidates, const TunerOptions& options) : ObservingTuner(candidates, options) {
    for (const Candidate& candidate : candidates)
      if (candidate.values.size() > 1)
        throw ConfigError("the reference tunes one number, bytes: use another method for several dimensions");
  }

 private:
  std::optional<std::size_t> choose() override {
    asked_ = kStart;
    if (!sizes_.empty()) {
      double most = -1;
      const double lowest = *std::min_element(seconds_.begin(), seconds_.end());
      for (double size = kLow; size <= kHigh; size += kStep) {
        const double gain = expected_improvement(belief(size), lowest, kXiSeconds);
        if (gain <= most) continue;
        most = gain;
        asked_ = size;
      }
    }
    return candidate_of(asked_);
  }

  void learn() override {
    const Observation& last = observations().back();
    const std::vector<double>& values = candidates()[last.candidate].values;
    if (values.empty()) return;
    sizes_.push_back({.position = {candidate_of(asked_) == last.candidate ? asked_ : values[0] / kMegabyte}});
    seconds_.push_back(last.seconds);
    mean_ = 0;
    for (const double seconds : seconds_) mean_ += seconds / static_cast<double>(seconds_.size());
    double squares = 0;
    for (const double seconds : seconds_) squares += (seconds - mean_) * (seconds - mean_);
    scale_ = squares > 0 ? std::sqrt(squares / static_cast<double>(seconds_.size())) : 1;
    std::vector<double> standardised;
    for (const double seconds : seconds_) standardised.push_back((seconds - mean_) / scale_);
    // No noise, a signal of one, and a length that is fitted, as its library has it.
    Kernel best{.lengths = {1}, .signal = 1, .noise = 1e-3};
    double highest = -1e300;
    for (double length = 0.1; length < 1e4; length *= 1.3) {
      Kernel kernel = best;
      kernel.lengths = {length};
      const double height = GaussianProcess(sizes_, standardised, kernel).log_likelihood();
      if (height <= highest) continue;
      highest = height;
      best = kernel;
    }
    process_ = std::make_unique<GaussianProcess>(sizes_, standardised, best);
  }

  [[nodiscard]] Belief belief(double size) const {
    const Belief standardised = process_->at({.position = {size}});
    return {.mean = mean_ + scale_ * standardised.mean, .deviation = scale_ * standardised.deviation};
  }

  [[nodiscard]] std::size_t candidate_of(double size) const {
    std::size_t nearest = 0;
    double least = 1e300;
    for (std::size_t i = 0; i < candidates().size(); ++i) {
      if (candidates()[i].values.empty()) continue;
      const double away = std::abs(std::log(candidates()[i].values[0] / (size * kMegabyte)));
      if (away >= least) continue;
      least = away;
      nearest = i;
    }
    return nearest;
  }

  double asked_ = kStart;
  std::vector<Point> sizes_;
  std::vector<double> seconds_;
  double mean_ = 0;
  double scale_ = 1;
  std::unique_ptr<GaussianProcess> process_;
};

}  // namespace

std::unique_ptr<Tuner> make_reference(const Candidates& candidates, const TunerOptions& options) {
  return std::make_unique<Reference>(candidates, options);
}

}  // namespace dear::bench
