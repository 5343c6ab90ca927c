#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"

namespace dear::codec {

// A matrix in a flat buffer of gradients, row by row: range.size() is a multiple of `rows`.
struct Matrix {
  Range range;
  std::int64_t rows = 1;
  std::uint64_t key =
      0;  // for the factor of the first step: the same on every rank, wherever the matrix lies
  [[nodiscard]] std::int64_t columns() const { return range.size() / rows; }
};

// PowerSGD: matrices M travel as two factors, P Q^T (Vogels, Karimireddy and Jaggi 2019, arXiv 1905.13727). A
// step is, on every rank and with the mean of all ranks after each round:
//   P = M Q;  mean of P;  P becomes orthonormal;  Q = M^T P;  mean of Q;  M = P Q^T.
// Both rounds add up: P and Q of the mean are the means of P and Q. Q of the last step, as it is after the
// mean, begins the next, so that the factors follow the largest singular vectors from step to step. A matrix
// of R rows and C columns has factors of min(rank, R, C) columns. Factors are fp32, one matrix behind
// another, and each column of a factor contiguous.
//
// An object serves one thread at a time, and allocates nothing after it is made. NaN spread to the matrix
// that they lie in, and stay in its state: see reset().
class LowRank {
 public:
  // ConfigError for a rank below 1, and matrices that overlap, are not ascending, or whose rows do not divide
  // them.
  LowRank(int rank, std::uint64_t seed, std::vector<Matrix> matrices);

  [[nodiscard]] std::int64_t p_elements() const { return p_elements_; }
  [[nodiscard]] std::int64_t q_elements() const { return static_cast<std::int64_t>(q_.size()); }

  // Round one: writes P of `values`, the whole flat buffer.
  void encode_p(std::span<const float> values, std::span<float> p) const;
  // Round two: makes the mean of P orthonormal, in place, and writes Q of the same `values`.
  void encode_q(std::span<const float> values, std::span<float> p, std::span<float> q) const;
  // Writes P Q^T over the matrices in `values`, of the orthonormal P and the mean of Q, and keeps this Q,
  // but for columns of zeros.
  void decode(std::span<const float> p, std::span<const float> q, std::span<float> values);
  // Takes P Q^T out of the matrices in `values`: with the mean of Q, all that was decoded; with this rank's
  // own Q, this rank's part of it.
  void take_out(std::span<const float> p, std::span<const float> q, std::span<float> values) const;

  // Q of the last step, or of the seed before the first: saved and loaded with a checkpoint, it continues
  // with the same bits. The part of one matrix follows its place in the list.
  [[nodiscard]] std::span<const float> state() const { return q_; }
  [[nodiscard]] std::span<float> state() { return q_; }
  [[nodiscard]] Range state_of(std::size_t matrix) const { return layout_[matrix].q; }
  // Draws Q of every matrix again, as it was before the first step.
  void reset();

 private:
  struct Place {
    std::int64_t rank;
    Range p, q;  // elements of the factors
  };
  void orthonormalise(const Matrix& matrix, std::int64_t rank, float* p) const;

  std::uint64_t seed_;
  std::vector<Matrix> matrices_;
  std::vector<Place> layout_;
  std::int64_t p_elements_ = 0;
  std::vector<float> q_;
};

}  // namespace dear::codec
