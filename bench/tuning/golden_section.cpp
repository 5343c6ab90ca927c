#include "bench/tuning/rivals.h"
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/tune/observations.h"

namespace dear::bench {
namespace {

using namespace tune;  // NOLINT(google-build-using-namespace): a rival is written as the tuners there

constexpr double kGolden = 0.6180339887498949;

// Candidates with values, by their first coordinate; those that stand apart are left out.
class GoldenSection final : public ObservingTuner {
 public:
  GoldenSection(const Candidates& candidates, const TunerOptions& options)
      : ObservingTuner(candidates, options) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].values.size() > 1)
        throw ConfigError("golden-section search has one dimension: use another method for several");
      if (candidates[i].values.size() == 1) order_.push_back(i);
    }
    if (order_.empty())
      throw ConfigError("golden-section search needs candidates with a value: use another method");
    std::sort(order_.begin(), order_.end(),
              [&](std::size_t a, std::size_t b) { return position(a) < position(b); });
    low_ = position(order_.front());
    high_ = position(order_.back());
  }

 private:
  // The valley between low and high is looked at in two places; the side of the higher one falls away. The
  // places are those of candidates, so what is learned in one step serves the next where it is near enough.
  std::optional<std::size_t> choose() override {
    for (;;) {
      const std::size_t left = nearest(high_ - kGolden * (high_ - low_));
      const std::size_t right = nearest(low_ + kGolden * (high_ - low_));
      if (times_observed(left) == 0) return left;
      if (times_observed(right) == 0) return right;
      if (left == right) return std::nullopt;
      if (seconds(left) <= seconds(right)) {
        high_ = position(right);
      } else {
        low_ = position(left);
      }
      // Both ends are candidates, so this ends when none lies between them.
      if (nearest(high_ - kGolden * (high_ - low_)) == left &&
          nearest(low_ + kGolden * (high_ - low_)) == right)
        return std::nullopt;
    }
  }

  [[nodiscard]] double position(std::size_t candidate) const {
    return candidates()[candidate].position.front();
  }

  [[nodiscard]] std::size_t nearest(double place) const {
    return *std::min_element(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return std::abs(position(a) - place) < std::abs(position(b) - place);
    });
  }

  [[nodiscard]] double seconds(std::size_t candidate) const {
    std::vector<double> seen;
    for (const Observation& observation : observations())
      if (observation.candidate == candidate) seen.push_back(observation.seconds);
    return median(std::move(seen));
  }

  std::vector<std::size_t> order_;
  double low_ = 0;
  double high_ = 1;
};

}  // namespace

std::unique_ptr<Tuner> make_golden_section(const Candidates& candidates, const TunerOptions& options) {
  return std::make_unique<GoldenSection>(candidates, options);
}

}  // namespace dear::bench
