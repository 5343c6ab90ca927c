#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "dear/predict/tune/gaussian_process.h"

namespace dear::tune {
namespace {

// The logarithms of lengths, signal and noise, in this order.
using Numbers = std::vector<double>;

constexpr double kGrow = 1.2;  // these are the usual constants of resilient propagation
constexpr double kShrink = 0.5;
constexpr double kFirstStep = 0.2;
constexpr double kLeastStep = 1e-4;
constexpr double kMostStep = 1;

// How far a start is from the centre of the prior, in logarithms.
struct Start {
  double length;
  double signal;
  double noise;
};
constexpr std::array kStarts{Start{0, 0, 0}, Start{-1.2, 0.5, -1}, Start{1, 0.5, 0.7}, Start{0, -1, 1},
                             Start{-0.5, 1, -1.5}};

class Ascent {
 public:
  Ascent(const std::vector<Point>& points, const std::vector<double>& values, const FitOptions& options)
      : points_(points), values_(values), options_(options) {
    const std::size_t lengths = points.empty() ? 1 : points.front().position.size();
    centre_.assign(lengths, std::log(options.length));
    reach_.assign(lengths, std::log(20.0));
    for (const double number : {options.signal, options.noise}) {
      centre_.push_back(std::log(number));
      reach_.push_back(std::log(100.0));
    }
  }

  [[nodiscard]] Numbers from(const Start& start) const {
    Numbers numbers = centre_;
    for (std::size_t d = 0; d + 2 < numbers.size(); ++d) numbers[d] += start.length;
    numbers[numbers.size() - 2] += start.signal;
    numbers.back() += start.noise;
    return numbers;
  }

  [[nodiscard]] Kernel kernel(const Numbers& numbers) const {
    Kernel kernel{.lengths = {},
                  .signal = std::exp(numbers[numbers.size() - 2]),
                  .noise = std::exp(numbers.back()),
                  .offset = options_.offset,
                  .slope = options_.slope};
    for (std::size_t d = 0; d + 2 < numbers.size(); ++d) kernel.lengths.push_back(std::exp(numbers[d]));
    return kernel;
  }

  // The best numbers on the way, and their likelihood times prior.
  [[nodiscard]] std::pair<double, Numbers> climb(Numbers numbers) const {
    std::pair<double, Numbers> best{-std::numeric_limits<double>::infinity(), numbers};
    Numbers steps(numbers.size(), kFirstStep);
    Numbers before(numbers.size(), 0);
    for (int step = 0; step < options_.steps; ++step) {
      const GaussianProcess process(points_, values_, kernel(numbers));
      double height = process.log_likelihood();
      Numbers slope = process.gradient();
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double away = numbers[i] - centre_[i];
        height -= away * away / 2;
        slope[i] -= away;
      }
      if (height > best.first) best = {height, numbers};
      bool moved = false;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double agreement = slope[i] * before[i];
        if (agreement > 0) steps[i] = std::min(steps[i] * kGrow, kMostStep);
        if (agreement < 0) {
          steps[i] = std::max(steps[i] * kShrink, kLeastStep);
          slope[i] = 0;
        }
        before[i] = slope[i];
        if (slope[i] == 0) continue;
        numbers[i] = std::clamp(numbers[i] + std::copysign(steps[i], slope[i]), centre_[i] - reach_[i],
                                centre_[i] + reach_[i]);
        moved = moved || steps[i] > kLeastStep;
      }
      if (!moved && step > 0 &&
          std::all_of(steps.begin(), steps.end(), [](double s) { return s <= kLeastStep; }))
        break;
    }
    return best;
  }

 private:
  const std::vector<Point>& points_;
  const std::vector<double>& values_;
  const FitOptions& options_;
  Numbers centre_;
  Numbers reach_;
};

}  // namespace

Kernel fit_kernel(const std::vector<Point>& points, const std::vector<double>& values,
                  const FitOptions& options) {
  const Ascent ascent(points, values, options);
  std::pair<double, Numbers> best{-std::numeric_limits<double>::infinity(), ascent.from(kStarts[0])};
  if (!points.empty()) {
    for (const Start& start : kStarts) {
      auto top = ascent.climb(ascent.from(start));
      if (top.first > best.first) best = std::move(top);
    }
  }
  return ascent.kernel(best.second);
}

}  // namespace dear::tune
