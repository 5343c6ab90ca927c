#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dear/methods/rounds/problem.h"

// The area under the ROC curve of a linear score, as a saddle point.
namespace dear::methods::rounds {

// The share of pairs of a positive and a negative sample in which the positive one has the larger score; ties
// count one half. O(n log n). ConfigError without samples of both classes, and for a score that is NaN.
double auc(std::span<const double> scores, const std::vector<bool>& positive);

enum class Shards : std::uint8_t {
  alike,
  sorted
};  // how samples come to clients: at random, or by a feature

struct AucShape {
  int clients = 4;
  std::int64_t dimension = 10;  // of samples
  int rows = 500;               // of a client
  double positive = 0.1;        // share of the positive class, among all clients
  double separation = 1;        // distance of the means of the classes, in standard deviations of a feature
  Shards shards = Shards::alike;
  std::uint64_t seed = 1;
};

// Samples of two classes, each normal with a covariance of its own, and the saddle function of Ying, Wen and
// Lyu 2016 (Stochastic online AUC maximization, NeurIPS) in the form of CoDA (arXiv 2005.02426), with p the
// share of positives of all clients, h = w^T x:
//   F = (1-p) (h - a)^2 [y=1] + p (h - b)^2 [y=-1] + 2 (1+alpha) (p h [y=-1] - (1-p) h [y=1]) - p (1-p)
//   alpha^2.
// Coordinates: w, a, b, and alpha, which is dual.
class AucProblem final : public Problem {
 public:
  // ConfigError for a shape that cannot be.
  explicit AucProblem(const AucShape& shape);

  [[nodiscard]] std::int64_t dimension() const override { return shape_.dimension + 3; }
  [[nodiscard]] int clients() const override { return shape_.clients; }
  [[nodiscard]] Constants constants() const override { return {}; }
  void gradient(int client, std::span<const double> point, const Batch& batch,
                std::span<double> out) const override;
  // w = (C+ + C- + d d^T)^-1 d, where C are the covariances of the classes, and d is the difference of means.
  [[nodiscard]] std::vector<double> optimum() const override;
  [[nodiscard]] std::int64_t primal() const override { return shape_.dimension + 2; }
  [[nodiscard]] double step_limit() const override { return 1 / (share_ * (1 - share_)); }
  // Sums of scores and numbers of samples, of the negative class, then of the positive one. Sums over
  // clients, not means of means: a batch may lack a class.
  [[nodiscard]] std::int64_t dual_sums() const override { return 4; }
  void add_dual_sums(int client, std::span<const double> point, const Batch& batch,
                     std::span<double> sums) const override;
  void set_dual(std::span<const double> sums, std::span<double> point) const override;

  // Both are of the samples of all clients.
  [[nodiscard]] double auc_of(std::span<const double> point) const;
  [[nodiscard]] double share_of_positives() const { return share_; }
  [[nodiscard]] std::span<const double> sample(std::size_t number) const;
  [[nodiscard]] bool positive(std::size_t number) const { return positive_[number]; }
  [[nodiscard]] std::size_t samples() const { return positive_.size(); }

 private:
  [[nodiscard]] std::size_t pick(int client, std::size_t number, const Batch& batch) const;
  [[nodiscard]] std::size_t picks(const Batch& batch) const;

  AucShape shape_;
  std::vector<double> samples_;  // client by client
  std::vector<bool> positive_;
  double share_ = 0;
};

}  // namespace dear::methods::rounds
