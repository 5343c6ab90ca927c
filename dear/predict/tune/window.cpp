#include "dear/predict/tune/window.h"

#include <algorithm>
#include <cmath>

#include "dear/predict/tune/observations.h"

namespace dear::tune {
namespace {

constexpr double kNormal = 1.4826;        // ratio of standard deviation to MAD, for a normal distribution
constexpr double kLeastDeviation = 0.02;  // part of the median: the MAD of a few values may be 0 by chance

double deviation(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> away;
  for (const double value : values) away.push_back(std::abs(value - middle));
  return kNormal * median(std::move(away));
}

}  // namespace

Window::Window(const WindowOptions& options, std::optional<double> best_seconds)
    : options_(options), best_seconds_(best_seconds) {}

Window::State Window::add(double seconds) {
  if (!std::isfinite(seconds) || !(seconds > 0)) return state_;
  ++iterations_;
  (iterations_ <= options_.warm_up_iterations ? warm_up_ : measured_).push_back(seconds);
  const bool slow = best_seconds_ && seconds > options_.hopeless_times * *best_seconds_;
  slow_on_end_ = slow ? slow_on_end_ + 1 : 0;
  const std::vector<double> good = counted();
  const auto count = static_cast<int>(good.size());
  if (slow_on_end_ >= 2) {
    state_ = State::hopeless;
  } else if (static_cast<int>(measured_.size()) >= options_.most_iterations ||
             (!measured_.empty() && count >= options_.least_iterations &&
              deviation_seconds() <= options_.precision * this->seconds())) {
    state_ = State::enough;
  }
  return state_;
}

std::vector<double> Window::counted() const {
  if (measured_.empty()) return warm_up_;
  const double middle = median(measured_);
  const double reach = options_.outlier_deviations * std::max(deviation(measured_), kLeastDeviation * middle);
  std::vector<double> good;
  for (const double seconds : measured_)
    if (std::abs(seconds - middle) <= reach) good.push_back(seconds);
  return good;
}

double Window::seconds() const {
  if (iterations_ == 0) return 0;
  return state_ == State::hopeless ? least_seconds() : median(counted());
}

double Window::least_seconds() const {
  if (iterations_ == 0) return 0;
  double least = warm_up_.empty() ? measured_.front() : warm_up_.front();
  for (const double seconds : warm_up_) least = std::min(least, seconds);
  for (const double seconds : measured_) least = std::min(least, seconds);
  return least;
}

double Window::noise_seconds() const {
  const std::vector<double> good = counted();
  return good.size() < 2 ? 0 : deviation(good);
}

double Window::deviation_seconds() const {
  const std::vector<double> good = counted();
  return good.size() < 2 ? 0 : kErrorOfMedian * deviation(good) / std::sqrt(static_cast<double>(good.size()));
}

}  // namespace dear::tune
