#include "dear/predict/tune/gaussian_process.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::tune {
namespace {

constexpr double kSqrt5 = 2.23606797749979;
constexpr double kLogTwoPi = 1.8378770664093453;

double scaled_distance(const std::vector<double>& one, const std::vector<double>& other,
                       const std::vector<double>& lengths) {
  double sum = 0;
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    const double step = (one[d] - other[d]) / lengths[d];
    sum += step * step;
  }
  return std::sqrt(sum);
}

Eigen::Index index(std::size_t i) { return static_cast<Eigen::Index>(i); }

}  // namespace

double matern_5_2(double r) { return (1 + kSqrt5 * r + 5.0 / 3 * r * r) * std::exp(-kSqrt5 * r); }

struct GaussianProcess::Factored {
  Eigen::LLT<Eigen::MatrixXd> covariance;
  Eigen::VectorXd residuals;
  Eigen::VectorXd weights;  // covariance^-1 residuals
};

GaussianProcess::GaussianProcess(std::vector<Point> points, const std::vector<double>& values, Kernel kernel)
    : points_(std::move(points)), kernel_(std::move(kernel)) {
  const std::size_t n = points_.size();
  auto factored = std::make_shared<Factored>();
  factored->residuals.resize(index(n));
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(values.at(i)))
      throw ConfigError(fmt::format("value {} of a process is {}: give finite ones", i, values[i]));
    factored->residuals[index(i)] = values[i] - points_[i].expected;
  }
  Eigen::MatrixXd all(index(n), index(n));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      all(index(i), index(j)) = all(index(j), index(i)) = covariance(points_[i], points_[j]);
  all.diagonal().array() += kernel_.noise * kernel_.noise;
  const double scale = n > 0 ? all.diagonal().maxCoeff() : 1;
  // Without noise the covariance of two equal points has rank one.
  for (double jitter = 1e-12;; jitter *= 100) {
    Eigen::MatrixXd lifted = all;
    lifted.diagonal().array() += jitter * scale;
    factored->covariance.compute(lifted);
    if (factored->covariance.info() == Eigen::Success || jitter > 1e-2) break;
  }
  factored->weights = factored->covariance.solve(factored->residuals);
  factored_ = std::move(factored);
}

double GaussianProcess::covariance(const Point& one, const Point& other) const {
  const double r = scaled_distance(one.position, other.position, kernel_.lengths);
  return kernel_.signal * kernel_.signal * matern_5_2(r) + kernel_.offset * kernel_.offset +
         kernel_.slope * kernel_.slope * one.expected * other.expected;
}

Belief GaussianProcess::at(const Point& point) const {
  Eigen::VectorXd with(index(points_.size()));
  for (std::size_t i = 0; i < points_.size(); ++i) with[index(i)] = covariance(points_[i], point);
  const double explained = factored_->covariance.matrixL().solve(with).squaredNorm();
  return {.mean = point.expected + with.dot(factored_->weights),
          .deviation = std::sqrt(std::max(0.0, covariance(point, point) - explained))};
}

double GaussianProcess::log_likelihood() const {
  const Eigen::MatrixXd& factor = factored_->covariance.matrixLLT();
  return -0.5 * factored_->residuals.dot(factored_->weights) - factor.diagonal().array().log().sum() -
         0.5 * static_cast<double>(points_.size()) * kLogTwoPi;
}

std::vector<double> GaussianProcess::gradient() const {
  const std::size_t n = points_.size();
  const double variance = kernel_.signal * kernel_.signal;
  // The derivative by a number is half the trace of (weights weights^T - covariance^-1) times the derivative
  // of the covariance by it.
  const auto along = [&](const Eigen::MatrixXd& derivative) {
    return 0.5 * (factored_->weights.dot(derivative * factored_->weights) -
                  factored_->covariance.solve(derivative).trace());
  };
  std::vector<double> result;
  Eigen::MatrixXd derivative(index(n), index(n));
  const auto fill = [&](const auto& entry) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        derivative(index(i), index(j)) =
            entry(i, j, scaled_distance(points_[i].position, points_[j].position, kernel_.lengths));
    result.push_back(along(derivative));
  };
  for (std::size_t d = 0; d < kernel_.lengths.size(); ++d) {
    fill([&](std::size_t i, std::size_t j, double r) {
      const double step = (points_[i].position[d] - points_[j].position[d]) / kernel_.lengths[d];
      return variance * 5 / 3 * (1 + kSqrt5 * r) * std::exp(-kSqrt5 * r) * step * step;
    });
  }
  fill([&](std::size_t, std::size_t, double r) { return 2 * variance * matern_5_2(r); });
  fill([&](std::size_t i, std::size_t j, double) { return i == j ? 2 * kernel_.noise * kernel_.noise : 0; });
  return result;
}

}  // namespace dear::tune
