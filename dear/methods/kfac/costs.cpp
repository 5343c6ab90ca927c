#include "dear/methods/kfac/costs.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::kfac {
namespace {

double cube(std::int64_t dimension) { return std::pow(static_cast<double>(dimension), 3); }

struct Line {
  double start, slope;
};

// Minimises the sum of ((start + slope x − y) / y)² over start, slope >= 0.
Line fit_relative(const std::vector<std::pair<double, double>>& points, const std::string& what) {
  double ww = 0, wx = 0, xx = 0, w = 0, x = 0;
  double least = INFINITY, most = -INFINITY;
  for (const auto& [at, seconds] : points) {
    if (!(seconds > 0) || !std::isfinite(seconds) || !(at > 0))
      throw ConfigError(fmt::format("a cost of {} cannot be fitted to {} s at {}: both must be positive",
                                    what, seconds, at));
    const double u = 1 / seconds, v = at / seconds;
    ww += u * u, wx += u * v, xx += v * v, w += u, x += v;
    least = std::min(least, at);
    most = std::max(most, at);
  }
  if (points.size() < 2 || least == most)
    throw ConfigError(fmt::format("a cost of {} needs measurements of at least two sizes", what));
  const double determinant = ww * xx - wx * wx;
  const Line both{(w * xx - x * wx) / determinant, (ww * x - wx * w) / determinant};
  if (both.start >= 0 && both.slope >= 0) return both;
  return both.start < 0 ? Line{0, x / xx} : Line{w / ww, 0};
}

std::vector<std::pair<double, double>> mapped(const std::vector<std::pair<std::int64_t, double>>& points,
                                              double (*at)(std::int64_t)) {
  std::vector<std::pair<double, double>> result;
  result.reserve(points.size());
  for (const auto& [size, seconds] : points) result.emplace_back(at(size), seconds);
  return result;
}

}  // namespace

InverseCost InverseCost::cubic(double start_seconds, double seconds_per_cube) {
  return {Form::cubic, start_seconds, seconds_per_cube};
}

InverseCost InverseCost::exponential(double start_seconds, double growth) {
  return {Form::exponential, start_seconds, growth};
}

InverseCost InverseCost::measured(std::vector<std::pair<std::int64_t, double>> points) {
  std::int64_t last = 0;
  for (const auto& [dimension, seconds] : points) {
    if (dimension <= last || !(seconds > 0) || !std::isfinite(seconds))
      throw ConfigError(fmt::format(
          "times of inverses must be positive, of ascending dimensions: {} s of dimension {} are not",
          seconds, dimension));
    last = dimension;
  }
  if (points.empty()) throw ConfigError("times of inverses were measured of no dimension: give at least one");
  InverseCost cost(Form::measured, 0, 0);
  cost.points_ = std::move(points);
  return cost;
}

double InverseCost::seconds(std::int64_t dimension) const {
  switch (form_) {
    case Form::cubic:
      return start_ + growth_ * cube(dimension);
    case Form::exponential:
      return start_ * std::exp(growth_ * static_cast<double>(dimension));
    case Form::measured:
      break;
  }
  const auto after = std::lower_bound(points_.begin(), points_.end(), dimension,
                                      [](const auto& point, std::int64_t d) { return point.first < d; });
  if (after == points_.begin()) return after->second;
  if (after == points_.end()) return points_.back().second * cube(dimension) / cube(points_.back().first);
  const auto& [low, low_seconds] = *(after - 1);
  const auto& [high, high_seconds] = *after;
  const double part = static_cast<double>(dimension - low) / static_cast<double>(high - low);
  return low_seconds + part * (high_seconds - low_seconds);
}

InverseCost InverseCost::times(double factor) const {
  InverseCost longer = *this;
  longer.start_ *= factor;
  if (form_ == Form::cubic) longer.growth_ *= factor;
  for (auto& [dimension, seconds] : longer.points_) seconds *= factor;
  return longer;
}

std::string InverseCost::text() const {
  switch (form_) {
    case Form::cubic:
      return fmt::format("{:.3g} s + {:.3g} s * d^3", start_, growth_);
    case Form::exponential:
      return fmt::format("{:.3g} s * exp({:.3g} d)", start_, growth_);
    case Form::measured:
      break;
  }
  return fmt::format("measured at {} dimensions", points_.size());
}

InverseCost fit_cubic(const std::vector<std::pair<std::int64_t, double>>& dimension_and_seconds) {
  const auto [start, slope] = fit_relative(mapped(dimension_and_seconds, cube), "inverses");
  return InverseCost::cubic(start, slope);
}

LinearCost fit_linear(const std::vector<std::pair<std::int64_t, double>>& elements_and_seconds) {
  const auto real = [](std::int64_t elements) { return static_cast<double>(elements); };
  const auto [start, slope] = fit_relative(mapped(elements_and_seconds, real), "a collective");
  return {start, slope};
}

}  // namespace dear::methods::kfac
