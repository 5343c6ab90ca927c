#include "dear/methods/rounds/logistic.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/rounds/draws.h"
#include "dear/methods/rounds/shapes.h"
#include "dear/methods/rounds/vectors.h"

namespace dear::methods::rounds {
namespace {

constexpr double kNoise = 0.1;  // of labels

// The rows of a client, each of as many features, all with a value of 1.
struct Rows {
  std::vector<std::uint32_t> features;  // [row][nonzero]
  std::vector<double> labels;           // -1 or 1

  [[nodiscard]] std::size_t size() const { return labels.size(); }
  [[nodiscard]] std::span<const std::uint32_t> row(std::size_t number) const {
    const std::size_t nonzeros = features.size() / labels.size();
    return {features.data() + number * nonzeros, nonzeros};
  }
  [[nodiscard]] double product(std::size_t number, std::span<const double> vector) const {
    double sum = 0;
    for (const std::uint32_t feature : row(number)) sum += vector[feature];
    return sum;
  }
  void add(std::size_t number, double scale, std::span<double> vector) const {
    for (const std::uint32_t feature : row(number)) vector[feature] += scale;
  }
};

class ZipfFeatures {
 public:
  explicit ZipfFeatures(std::int64_t count) {
    double sum = 0;
    for (std::int64_t feature = 0; feature < count; ++feature)
      below_.push_back(sum += 1.0 / static_cast<double>(feature + 1));
  }
  // Distinct features of a row.
  void draw_row(codec::Draw& draw, int nonzeros, std::vector<std::uint32_t>& row) const {
    const std::size_t begin = row.size();
    while (row.size() < begin + index_of(nonzeros)) {
      const auto place = std::upper_bound(below_.begin(), below_.end(), unit(draw) * below_.back());
      const auto feature = static_cast<std::uint32_t>(
          std::min<std::ptrdiff_t>(place - below_.begin(), static_cast<std::ptrdiff_t>(below_.size()) - 1));
      if (std::find(row.begin() + static_cast<std::ptrdiff_t>(begin), row.end(), feature) == row.end())
        row.push_back(feature);
    }
  }

 private:
  std::vector<double> below_;
};

class Logistic final : public Problem {
 public:
  explicit Logistic(const LogisticShape& shape) : shape_(shape) {
    const auto dimension = static_cast<std::size_t>(shape.dimension);
    const ZipfFeatures features(shape.dimension);
    codec::Draw common = draws_of(shape.seed, Purpose::data, 0);
    std::vector<double> truth(dimension);
    for (double& value : truth) value = normal(common);
    double largest = 0;
    for (int client = 0; client < shape.clients; ++client) {
      codec::Draw draw = draws_of(shape.seed, Purpose::data, 1, client);
      std::vector<double> own = truth;
      for (double& value : own) value += shape.heterogeneity * normal(draw);
      Rows& rows = clients_.emplace_back();
      rows.labels.resize(index_of(shape.rows));
      for (int row = 0; row < shape.rows; ++row) features.draw_row(draw, shape.nonzeros, rows.features);
      for (std::size_t row = 0; row < rows.size(); ++row)
        rows.labels[row] = rows.product(row, own) + kNoise * normal(draw) > 0 ? 1 : -1;
      largest = std::max(largest, curvature(rows, dimension));
    }
    ridge_ = largest / (shape.condition - 1);
  }

  [[nodiscard]] std::int64_t dimension() const override { return shape_.dimension; }
  [[nodiscard]] int clients() const override { return shape_.clients; }
  [[nodiscard]] Constants constants() const override {
    return {.smoothness = ridge_ * shape_.condition, .convexity = ridge_};
  }
  void gradient(int client, std::span<const double> point, const Batch& batch,
                std::span<double> out) const override {
    const Rows& rows = clients_[index_of(client)];
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = ridge_ * point[i];
    const std::size_t samples = batch.size == 0 ? rows.size() : index_of(batch.size);
    for (std::size_t sample = 0; sample < samples; ++sample) {
      const std::size_t row = batch.size == 0 ? sample : batch.draw->below(rows.size());
      const double margin = rows.labels[row] * rows.product(row, point);
      rows.add(row, -rows.labels[row] / (1 + std::exp(margin)) / static_cast<double>(samples), out);
    }
  }
  [[nodiscard]] std::vector<double> optimum() const override;

 private:
  static double curvature(const Rows& rows, std::size_t dimension) {
    const double value = largest_eigenvalue(
        [&](std::span<const double> in, std::span<double> out) {
          std::fill(out.begin(), out.end(), 0.0);
          for (std::size_t row = 0; row < rows.size(); ++row) rows.add(row, rows.product(row, in), out);
        },
        dimension);
    return value / (4 * static_cast<double>(rows.size()));
  }
  [[nodiscard]] std::vector<double> mean_gradient(std::span<const double> point) const {
    std::vector<double> one(point.size()), mean(point.size());
    for (int client = 0; client < shape_.clients; ++client) {
      gradient(client, point, {}, one);
      add_scaled(1.0 / shape_.clients, one, mean);
    }
    return mean;
  }
  // out = the Hessian of the mean at `point`, times in.
  void hessian(std::span<const double> point, std::span<const double> in, std::span<double> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = ridge_ * in[i];
    for (const Rows& rows : clients_) {
      const double weight = 1.0 / (static_cast<double>(rows.size()) * shape_.clients);
      for (std::size_t row = 0; row < rows.size(); ++row) {
        const double likely = 1 / (1 + std::exp(rows.product(row, point)));
        rows.add(row, weight * likely * (1 - likely) * rows.product(row, in), out);
      }
    }
  }

  LogisticShape shape_;
  std::vector<Rows> clients_;
  double ridge_ = 0;
};

// Newton's method. A step is halved until the gradient, whose norm is zero at the optimum alone, is smaller.
std::vector<double> Logistic::optimum() const {
  constexpr int kMostSteps = 200;
  std::vector<double> point(static_cast<std::size_t>(shape_.dimension));
  std::vector<double> gradient = mean_gradient(point);
  for (int step = 0; step < kMostSteps; ++step) {
    const std::vector<double> direction = solve_positive(
        [&](std::span<const double> in, std::span<double> out) { hessian(point, in, out); }, gradient);
    const double before = dot(gradient, gradient);
    double length = 1;
    std::vector<double> next, gradient_next;
    do {
      next = point;
      add_scaled(-length, direction, next);
      gradient_next = mean_gradient(next);
      length /= 2;
    } while (dot(gradient_next, gradient_next) >= before && length > 1e-6);
    if (dot(gradient_next, gradient_next) >= before) break;  // rounding alone is left
    point = std::move(next);
    gradient = std::move(gradient_next);
  }
  return point;
}

}  // namespace

std::unique_ptr<Problem> make_logistic(const LogisticShape& given) {
  LogisticShape shape = given;
  check_shape(shape.clients, shape.dimension, shape.heterogeneity);
  check_condition(shape.condition);
  if (shape.rows < 1 || shape.nonzeros < 1)
    throw ConfigError(fmt::format("clients with {} rows of {} features have no data: give at least 1 of each",
                                  shape.rows, shape.nonzeros));
  shape.nonzeros = static_cast<int>(
      std::min<std::int64_t>(shape.nonzeros, std::max<std::int64_t>(1, shape.dimension / 2)));
  return std::make_unique<Logistic>(shape);
}

}  // namespace dear::methods::rounds
