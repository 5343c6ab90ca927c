#include "dear/methods/rounds/auc.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/rounds/draws.h"
#include "dear/methods/rounds/shapes.h"
#include "dear/methods/rounds/vectors.h"

namespace dear::methods::rounds {

double auc(std::span<const double> scores, const std::vector<bool>& positive) {
  if (scores.size() != positive.size())
    throw ConfigError(
        fmt::format("{} scores do not fit {} labels: give one for each", scores.size(), positive.size()));
  for (const double score : scores)
    if (std::isnan(score))
      throw ConfigError("a score is not a number, so no rank is its own: find where it arose");
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  double positives = 0, ranks = 0;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    double here = 0;
    for (; end < order.size() && scores[order[end]] == scores[order[begin]]; ++end)
      here += positive[order[end]] ? 1 : 0;
    positives += here;
    ranks += here * 0.5 * static_cast<double>(begin + end + 1);  // ties share the mean of their ranks
    begin = end;
  }
  const double negatives = static_cast<double>(scores.size()) - positives;
  if (positives == 0 || negatives == 0)
    throw ConfigError("samples of one class alone have no area under a curve: give samples of both");
  return (ranks - 0.5 * positives * (positives + 1)) / (positives * negatives);
}

AucProblem::AucProblem(const AucShape& shape) : shape_(shape) {
  check_shape(shape.clients, shape.dimension, 0);
  const auto rows = static_cast<std::size_t>(shape.clients) * index_of(std::max(shape.rows, 0));
  const auto positives = static_cast<std::size_t>(std::llround(shape.positive * static_cast<double>(rows)));
  if (!(shape.positive > 0 && shape.positive < 1) || positives < 1 || positives >= rows)
    throw ConfigError(
        fmt::format("a share of positives of {} leaves a class without samples among {}: give one "
                    "between 0 and 1, and enough samples",
                    shape.positive, rows));
  if (!std::isfinite(shape.separation))
    throw ConfigError(fmt::format("a separation of {} cannot be: give a finite number", shape.separation));
  share_ = static_cast<double>(positives) / static_cast<double>(rows);
  const auto dimension = static_cast<std::size_t>(shape.dimension);
  codec::Draw draw = draws_of(shape.seed, Purpose::data, 0);
  // Features of the positive class spread more or less than those of the other.
  std::vector<double> mean(dimension), spread(dimension);
  for (std::size_t i = 0; i < dimension; ++i) {
    mean[i] = shape.separation * normal(draw) / std::sqrt(static_cast<double>(dimension));
    spread[i] = 0.5 + unit(draw);
  }
  std::vector<std::vector<double>> samples(rows, std::vector<double>(dimension));
  std::vector<std::size_t> order(rows);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < dimension; ++i)
      samples[row][i] = row < positives ? mean[i] + spread[i] * normal(draw) : normal(draw);
  for (std::size_t row = rows; row > 1; --row) std::swap(order[row - 1], order[draw.below(row)]);
  if (shape.shards == Shards::sorted)
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return samples[a][0] < samples[b][0]; });
  for (const std::size_t row : order) {
    samples_.insert(samples_.end(), samples[row].begin(), samples[row].end());
    positive_.push_back(row < positives);
  }
}

std::span<const double> AucProblem::sample(std::size_t number) const {
  const auto dimension = static_cast<std::size_t>(shape_.dimension);
  return {samples_.data() + number * dimension, dimension};
}

std::size_t AucProblem::picks(const Batch& batch) const {
  return index_of(batch.size == 0 ? shape_.rows : batch.size);
}

std::size_t AucProblem::pick(int client, std::size_t number, const Batch& batch) const {
  const std::size_t rows = index_of(shape_.rows);
  return index_of(client) * rows + (batch.size == 0 ? number : batch.draw->below(rows));
}

void AucProblem::gradient(int client, std::span<const double> point, const Batch& batch,
                          std::span<double> out) const {
  const auto dimension = static_cast<std::size_t>(shape_.dimension);
  const double p = share_, a = point[dimension], b = point[dimension + 1], alpha = point[dimension + 2];
  std::fill(out.begin(), out.end(), 0.0);
  const std::size_t count = picks(batch);
  for (std::size_t number = 0; number < count; ++number) {
    const std::size_t row = pick(client, number, batch);
    const std::span<const double> features = sample(row);
    const double h = dot(features, point.first(dimension));
    double by_h = 0;  // dF / dh
    if (positive_[row]) {
      by_h = 2 * (1 - p) * (h - a) - 2 * (1 + alpha) * (1 - p);
      out[dimension] -= 2 * (1 - p) * (h - a);
      out[dimension + 2] += 2 * (1 - p) * h;
    } else {
      by_h = 2 * p * (h - b) + 2 * (1 + alpha) * p;
      out[dimension + 1] -= 2 * p * (h - b);
      out[dimension + 2] -= 2 * p * h;
    }
    add_scaled(by_h, features, out.first(dimension));
  }
  for (double& value : out) value /= static_cast<double>(count);
  out[dimension + 2] += 2 * p * (1 - p) * alpha;
}

std::vector<double> AucProblem::optimum() const {
  const auto dimension = static_cast<std::size_t>(shape_.dimension);
  std::array<std::vector<double>, 2> means{std::vector<double>(dimension), std::vector<double>(dimension)};
  const auto rows = static_cast<double>(samples());
  const std::array<double, 2> counts{(1 - share_) * rows, share_ * rows};
  for (std::size_t row = 0; row < samples(); ++row)
    add_scaled(1 / counts[positive_[row] ? 1 : 0], sample(row), means[positive_[row] ? 1 : 0]);
  std::vector<double> difference = means[1];
  add_scaled(-1, means[0], difference);
  std::vector<double> w = solve_positive(
      [&](std::span<const double> in, std::span<double> out) {
        std::fill(out.begin(), out.end(), 0.0);
        for (std::size_t row = 0; row < samples(); ++row) {
          const std::size_t of = positive_[row] ? 1 : 0;
          const double centred = dot(sample(row), in) - dot(means[of], in);
          add_scaled(centred / counts[of], sample(row), out);
          add_scaled(-centred / counts[of], means[of], out);
        }
        add_scaled(dot(difference, in), difference, out);
      },
      difference);
  const double a = dot(w, means[1]), b = dot(w, means[0]);
  w.insert(w.end(), {a, b, b - a});
  return w;
}

void AucProblem::add_dual_sums(int client, std::span<const double> point, const Batch& batch,
                               std::span<double> sums) const {
  for (std::size_t number = 0; number < picks(batch); ++number) {
    const std::size_t row = pick(client, number, batch);
    const std::size_t of = positive_[row] ? 2 : 0;
    sums[of] += dot(sample(row), point.first(static_cast<std::size_t>(shape_.dimension)));
    sums[of + 1] += 1;
  }
}

// alpha = b - a, where a and b are the mean scores of positive and negative samples. It stays as it is where
// a class has none.
void AucProblem::set_dual(std::span<const double> sums, std::span<double> point) const {
  if (sums[1] > 0 && sums[3] > 0) point.back() = sums[0] / sums[1] - sums[2] / sums[3];
}

double AucProblem::auc_of(std::span<const double> point) const {
  std::vector<double> scores;
  for (std::size_t row = 0; row < samples(); ++row)
    scores.push_back(dot(sample(row), point.first(static_cast<std::size_t>(shape_.dimension))));
  return auc(scores, positive_);
}

}  // namespace dear::methods::rounds
