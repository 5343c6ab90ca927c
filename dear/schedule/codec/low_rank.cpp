#include "dear/schedule/codec/low_rank.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/kernels.h"

namespace dear::codec {
namespace {

double dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Takes what lies in the direction of the first `columns` columns out of a vector; the norm of what is left.
double project_out(const float* p, std::int64_t rows, std::int64_t columns, float* vector) {
  for (std::int64_t column = 0; column < columns; ++column) {
    const float* direction = p + column * rows;
    const auto part = static_cast<float>(dot(direction, vector, rows));
    for (std::int64_t i = 0; i < rows; ++i) vector[i] -= part * direction[i];
  }
  return std::sqrt(dot(vector, vector, rows));
}

void divide(float* vector, std::int64_t rows, double by) {
  for (std::int64_t i = 0; i < rows; ++i) vector[i] = static_cast<float>(static_cast<double>(vector[i]) / by);
}

// So much is left of a column after projection, relative to it, that is more than rounding.
constexpr double kIndependent = 1e-5;

}  // namespace

LowRank::LowRank(int rank, std::uint64_t seed, std::vector<Matrix> matrices)
    : seed_(seed), matrices_(std::move(matrices)) {
  if (rank < 1) {
    throw ConfigError(fmt::format("the rank of low-rank factors is {}: it must be at least 1", rank));
  }
  std::int64_t end = 0, q_elements = 0;
  for (const Matrix& matrix : matrices_) {
    if (matrix.range.begin < end || matrix.range.size() < 0 || matrix.rows < 1 ||
        matrix.range.size() % matrix.rows != 0) {
      throw ConfigError(
          fmt::format("elements {} to {} are no matrix of {} rows behind element {}: sort matrices by "
                      "where they lie, each of whole rows",
                      matrix.range.begin, matrix.range.end, matrix.rows, end));
    }
    end = matrix.range.end;
    const std::int64_t columns = matrix.columns();
    const std::int64_t of_this = std::min({static_cast<std::int64_t>(rank), matrix.rows, columns});
    layout_.push_back({.rank = of_this,
                       .p = {p_elements_, p_elements_ + of_this * matrix.rows},
                       .q = {q_elements, q_elements + of_this * columns}});
    p_elements_ = layout_.back().p.end;
    q_elements = layout_.back().q.end;
  }
  q_.resize(static_cast<std::size_t>(q_elements));
  reset();
}

void LowRank::reset() {
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    Draw random(seed_, 0, matrices_[i].key);
    const Range& range = layout_[i].q;
    for (std::int64_t at = range.begin; at < range.end; ++at)
      q_[static_cast<std::size_t>(at)] = random.uniform();
  }
}

void LowRank::encode_p(std::span<const float> values, std::span<float> p) const {
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const auto& [range, rows, key] = matrices_[i];
    if (layout_[i].rank == 0) continue;  // no elements
    kernels().multiply({rows, matrices_[i].columns(), layout_[i].rank}, values.data() + range.begin,
                       q_.data() + layout_[i].q.begin, p.data() + layout_[i].p.begin);
  }
}

// [Note: orthonormal factors] Gram-Schmidt in the order of the columns, twice: what rounding left of the
// others after the first time is gone after the second (Giraud, Langou and Rozloznik 2005,
// doi:10.1016/j.camwa.2005.08.009). A column that depends on those before it, as all do where the gradient is
// zero or of smaller rank, would give a direction of noise, another on each kind of processor, or none for
// ever after. It is replaced by a drawn one, the same on every rank: Q gets what the gradient has in that
// direction, zero in this step, and the factors have their whole rank when the gradient has.
void LowRank::orthonormalise(const Matrix& matrix, std::int64_t rank, float* p) const {
  constexpr int kDraws = 8;  // one will do, unless all that is left is one direction
  for (std::int64_t column = 0; column < rank; ++column) {
    float* vector = p + column * matrix.rows;
    double before = std::sqrt(dot(vector, vector, matrix.rows));
    double left = project_out(p, matrix.rows, column, vector);
    Draw random(seed_, 1, matrix.key);
    for (int draw = 0; left <= kIndependent * before && draw < kDraws; ++draw) {
      for (std::int64_t i = 0; i < matrix.rows; ++i) vector[i] = random.uniform();
      before = std::sqrt(dot(vector, vector, matrix.rows));
      left = project_out(p, matrix.rows, column, vector);
    }
    divide(vector, matrix.rows, left);
    divide(vector, matrix.rows, project_out(p, matrix.rows, column, vector));
  }
}

void LowRank::encode_q(std::span<const float> values, std::span<float> p, std::span<float> q) const {
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const auto& [range, rows, key] = matrices_[i];
    if (layout_[i].rank == 0) continue;
    float* p_of_this = p.data() + layout_[i].p.begin;
    orthonormalise(matrices_[i], layout_[i].rank, p_of_this);
    kernels().multiply_transposed({rows, matrices_[i].columns(), layout_[i].rank},
                                  values.data() + range.begin, p_of_this, q.data() + layout_[i].q.begin);
  }
}

void LowRank::decode(std::span<const float> p, std::span<const float> q, std::span<float> values) {
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const auto& [range, rows, key] = matrices_[i];
    if (layout_[i].rank == 0) continue;
    kernels().product({rows, matrices_[i].columns(), layout_[i].rank}, p.data() + layout_[i].p.begin,
                      q.data() + layout_[i].q.begin, values.data() + range.begin);
  }
  // A column of zeros, as a gradient of zero gives, would say nothing of the next gradient.
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const std::int64_t columns = matrices_[i].columns();
    for (std::int64_t begin = layout_[i].q.begin; begin < layout_[i].q.end; begin += columns) {
      const auto column = q.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(columns));
      if (std::any_of(column.begin(), column.end(), [](float value) { return value != 0; })) {
        std::copy(column.begin(), column.end(), q_.begin() + begin);
      }
    }
  }
}

void LowRank::take_out(std::span<const float> p, std::span<const float> q, std::span<float> values) const {
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const auto& [range, rows, key] = matrices_[i];
    if (layout_[i].rank == 0) continue;
    kernels().subtract_product({rows, matrices_[i].columns(), layout_[i].rank}, p.data() + layout_[i].p.begin,
                               q.data() + layout_[i].q.begin, values.data() + range.begin);
  }
}

}  // namespace dear::codec
