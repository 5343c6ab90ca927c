#include <cmath>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/rounds/auc.h"
#include "dear/methods/rounds/run.h"
#include "dear/methods/rounds/runs_in_test.h"

namespace dear::methods::rounds::coda_test {
namespace {

using testing::settings_of;
using Vector = std::vector<double>;

double score(const AucProblem& problem, std::size_t row, const Vector& w) {
  double sum = 0;
  for (std::size_t i = 0; i < problem.sample(row).size(); ++i) sum += w[i] * problem.sample(row)[i];
  return sum;
}

// Of all pairs, one by one.
double brute_force_auc(const Vector& scores, const std::vector<bool>& positive) {
  double better = 0, pairs = 0;
  for (std::size_t i = 0; i < scores.size(); ++i)
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (!positive[i] || positive[j]) continue;
      ++pairs;
      better += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  return better / pairs;
}

TEST(Auc, EqualsBruteForceWithTies) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    Vector scores;
    std::vector<bool> positive{true, false};
    const auto count = 2 + random() % 30;
    for (std::size_t i = 0; i < count; ++i) scores.push_back(static_cast<double>(random() % 7));
    while (positive.size() < count) positive.push_back(random() % 3 == 0);
    ASSERT_NEAR(auc(scores, positive), brute_force_auc(scores, positive), 1e-14);
  }
  EXPECT_DOUBLE_EQ(auc(Vector{1, 1, 1}, {true, false, false}), 0.5) << "constant scores";
  EXPECT_THROW(auc(Vector{1, 2}, {true, true}), ConfigError);
  EXPECT_THROW(auc(Vector{1, NAN}, {true, false}), ConfigError);
  EXPECT_THROW(auc(Vector{1}, {true, false}), ConfigError);
}

// Solves A x = b by Gaussian elimination.
Vector eliminate(std::vector<Vector> a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t pivot = 0; pivot < n; ++pivot) {
    std::size_t best = pivot;
    for (std::size_t row = pivot; row < n; ++row)
      if (std::abs(a[row][pivot]) > std::abs(a[best][pivot])) best = row;
    std::swap(a[pivot], a[best]);
    std::swap(b[pivot], b[best]);
    for (std::size_t row = 0; row < n; ++row) {
      if (row == pivot) continue;
      const double factor = a[row][pivot] / a[pivot][pivot];
      for (std::size_t column = 0; column < n; ++column) a[row][column] -= factor * a[pivot][column];
      b[row] -= factor * b[pivot];
    }
  }
  for (std::size_t row = 0; row < n; ++row) b[row] /= a[row][row];
  return b;
}

// The saddle's w minimises the mean over all pairs of (1 - w^T (x - x'))^2: least squares on differences.
TEST(Auc, TheOptimumMinimisesTheSquaredLossOfAllPairs) {
  const AucProblem problem({.clients = 3, .dimension = 5, .rows = 40, .positive = 0.3, .seed = 2});
  std::vector<Vector> squares(5, Vector(5));
  Vector sums(5);
  for (std::size_t i = 0; i < problem.samples(); ++i)
    for (std::size_t j = 0; j < problem.samples(); ++j) {
      if (!problem.positive(i) || problem.positive(j)) continue;
      Vector difference(5);
      for (std::size_t k = 0; k < 5; ++k) difference[k] = problem.sample(i)[k] - problem.sample(j)[k];
      for (std::size_t k = 0; k < 5; ++k) {
        sums[k] += difference[k];
        for (std::size_t l = 0; l < 5; ++l) squares[k][l] += difference[k] * difference[l];
      }
    }
  const Vector w = eliminate(squares, sums);
  const Vector optimum = problem.optimum();
  for (std::size_t k = 0; k < 5; ++k) EXPECT_NEAR(optimum[k], w[k], 1e-10);
  // a and b are the mean scores of the classes, and alpha is b - a.
  double positive = 0, negative = 0;
  for (std::size_t i = 0; i < problem.samples(); ++i)
    (problem.positive(i) ? positive : negative) += score(problem, i, w) / 120;
  EXPECT_NEAR(optimum[5], positive / problem.share_of_positives(), 1e-10);
  EXPECT_NEAR(optimum[6], negative / (1 - problem.share_of_positives()), 1e-10);
  EXPECT_NEAR(optimum[7], optimum[6] - optimum[5], 1e-10);
}

// F of a sample as CoDA writes it.
double saddle(double p, double h, bool positive, double a, double b, double alpha) {
  return (positive ? (1 - p) * (h - a) * (h - a) - 2 * (1 + alpha) * (1 - p) * h
                   : p * (h - b) * (h - b) + 2 * (1 + alpha) * p * h) -
         p * (1 - p) * alpha * alpha;
}

double saddle_of(const AucProblem& problem, std::size_t first, std::size_t rows, const Vector& z) {
  double sum = 0;
  for (std::size_t row = first; row < first + rows; ++row)
    sum += saddle(problem.share_of_positives(), score(problem, row, z), problem.positive(row),
                  z[z.size() - 3], z[z.size() - 2], z.back());
  return sum / static_cast<double>(rows);
}

TEST(Auc, GradientsAreDifferencesOfTheSaddleFunction) {
  const AucProblem problem({.clients = 3, .dimension = 4, .rows = 30, .positive = 0.3, .seed = 2});
  Vector z{0.3, -0.2, 0.5, 0.1, 0.7, -0.4, 0.6}, gradient(7);
  problem.gradient(1, z, {}, gradient);
  for (std::size_t k = 0; k < 7; ++k) {
    Vector up = z, down = z;
    up[k] += 1e-5;
    down[k] -= 1e-5;
    const double slope = (saddle_of(problem, 30, 30, up) - saddle_of(problem, 30, 30, down)) / 2e-5;
    EXPECT_NEAR(gradient[k], k == 6 ? -slope : slope, 1e-8) << k;
  }
}

TEST(Auc, RefusesShapesThatCannotBe) {
  EXPECT_THROW(AucProblem({.positive = 0}), ConfigError);
  EXPECT_THROW(AucProblem({.positive = 1}), ConfigError);
  EXPECT_THROW(AucProblem({.clients = 1, .rows = 5, .positive = 0.05}), ConfigError);
  EXPECT_THROW(AucProblem({.dimension = 0}), ConfigError);
}

// Stages of one worker, with a round after each step, as the paper writes them down.
Vector one_worker(const AucProblem& problem, const Settings& settings) {
  const auto d = static_cast<std::size_t>(problem.dimension());
  Vector z(d), reference(d - 1), g(d);
  double eta = settings.gamma;
  for (int stage = 0; stage < settings.stages.count; ++stage, eta /= settings.stages.shrink) {
    Vector mean(d - 1);
    for (std::int64_t step = 0; step < settings.stages.steps; ++step) {
      problem.gradient(0, z, {}, g);
      for (std::size_t k = 0; k + 1 < d; ++k) {
        z[k] = (z[k] / eta + reference[k] / settings.stages.proximal - g[k]) /
               (1 / eta + 1 / settings.stages.proximal);
        mean[k] += z[k] / static_cast<double>(settings.stages.steps);
      }
      z[d - 1] -= eta * g[d - 1];
    }
    reference = mean;
    std::copy(mean.begin(), mean.end(), z.begin());
    double positive = 0, negative = 0, positives = 0;
    for (std::size_t row = 0; row < problem.samples(); ++row) {
      positives += problem.positive(row) ? 1 : 0;
      (problem.positive(row) ? positive : negative) += score(problem, row, z);
    }
    z[d - 1] = negative / (static_cast<double>(problem.samples()) - positives) - positive / positives;
  }
  return z;
}

// The first client of a problem, several times.
class Copies final : public Problem {
 public:
  Copies(const AucProblem& problem, int copies) : problem_(problem), copies_(copies) {}
  [[nodiscard]] std::int64_t dimension() const override { return problem_.dimension(); }
  [[nodiscard]] int clients() const override { return copies_; }
  [[nodiscard]] Constants constants() const override { return {}; }
  void gradient(int /*client*/, std::span<const double> point, const Batch& batch,
                std::span<double> out) const override {
    problem_.gradient(0, point, batch, out);
  }
  [[nodiscard]] std::vector<double> optimum() const override { return problem_.optimum(); }
  [[nodiscard]] std::int64_t primal() const override { return problem_.primal(); }
  [[nodiscard]] std::int64_t dual_sums() const override { return problem_.dual_sums(); }
  void add_dual_sums(int /*client*/, std::span<const double> point, const Batch& batch,
                     std::span<double> sums) const override {
    problem_.add_dual_sums(0, point, batch, sums);
  }
  void set_dual(std::span<const double> sums, std::span<double> point) const override {
    problem_.set_dual(sums, point);
  }

 private:
  const AucProblem& problem_;
  int copies_;
};

Vector end_of(const Problem& problem, const Settings& settings) {
  Rounds run(testing::alone(), problem, settings);
  while (run.next()) {
  }
  return {run.model().begin(), run.model().end()};
}

TEST(Coda, OneWorkerAndCopiesOfItEqualTheTextbook) {
  const AucProblem problem({.clients = 1, .dimension = 5, .rows = 60, .positive = 0.3, .seed = 2});
  const Stages stages{.count = 3, .steps = 50, .shrink = 3, .proximal = 40};
  const Vector expected = one_worker(problem, settings_of("coda", problem, {.every = 1, .stages = stages}));
  const Copies copies(problem, 4);
  for (const char* const algorithm : {"coda", "codasca"})
    for (const std::int64_t every : {1, 8}) {
      const Settings settings{.every = every, .stages = stages};
      const Vector one = end_of(problem, settings_of(algorithm, problem, settings));
      const Vector several = end_of(copies, settings_of(algorithm, copies, settings));
      for (std::size_t k = 0; k < expected.size(); ++k) {
        ASSERT_NEAR(one[k], expected[k], 1e-12) << algorithm << " " << every;
        ASSERT_NEAR(several[k], expected[k], 1e-12) << algorithm << " " << every;
      }
    }
}

// The mean over steps and workers, and one alpha of all: two workers, a stage of one step.
TEST(Coda, AStageEndsAtTheMeanOfAllIterates) {
  const AucProblem problem({.clients = 2, .dimension = 3, .rows = 40, .positive = 0.4, .seed = 5});
  const Settings settings = settings_of(
      "coda", problem, {.gamma = 0.2, .every = 1, .stages = {.count = 1, .steps = 1, .proximal = 1e300}});
  const Vector end = end_of(problem, settings);
  Vector g(6), expected(6);
  for (int client = 0; client < 2; ++client) {
    problem.gradient(client, Vector(6), {}, g);
    for (std::size_t k = 0; k < 5; ++k) expected[k] -= 0.1 * g[k];
  }
  for (std::size_t k = 0; k < 5; ++k) EXPECT_NEAR(end[k], expected[k], 1e-15);
  double positive = 0, negative = 0;
  for (std::size_t row = 0; row < 80; ++row)
    (problem.positive(row) ? positive : negative) += score(problem, row, expected);
  EXPECT_NEAR(end[5], negative / 48 - positive / 32, 1e-14);
}

TEST(Coda, StagesEndWhereTheirStepsDo) {
  const AucProblem problem({.clients = 2, .dimension = 3, .rows = 40, .positive = 0.4});
  Rounds run(testing::alone(), problem,
             settings_of("coda", problem, {.every = 8, .stages = {.count = 3, .steps = 20}}));
  int calls = 0;
  while (run.next()) ++calls;
  EXPECT_EQ(calls, 3 * (3 + 1)) << "8, 8 and 4 steps, and the end of the stage";
  EXPECT_EQ(run.counts().steps, 60);
  EXPECT_EQ(run.counts().rounds, 3 * (3 + 2)) << "the mean, then sums of scores";
  EXPECT_FALSE(run.next());
}

struct Result {
  double auc, distance;
  std::int64_t rounds;
};

Result train(const AucProblem& problem, const char* algorithm, std::int64_t every, int batch,
             std::int64_t steps) {
  Rounds run(testing::alone(), problem,
             settings_of(algorithm, problem, {.every = every, .batch = batch, .stages = {.steps = steps}}));
  while (run.next()) {
  }
  const Vector optimum = problem.optimum();
  double squared = 0, norm = 0;
  for (std::size_t k = 0; k + 3 < optimum.size(); ++k) {
    squared += std::pow(run.model()[k] - optimum[k], 2);
    norm += std::pow(optimum[k], 2);
  }
  return {problem.auc_of(run.model()), std::sqrt(squared / norm), run.counts().rounds};
}

TEST(Coda, ReachesTheSameAucInFarFewerRounds) {
  const AucProblem problem({.clients = 4, .dimension = 10, .rows = 500, .positive = 0.1});
  const Result each = train(problem, "coda", 1, 4, 4000);
  EXPECT_NEAR(each.auc, problem.auc_of(problem.optimum()), 1e-3);
  for (const std::int64_t every : {32, 128}) {
    const Result seldom = train(problem, "coda", every, 4, 4000);
    EXPECT_NEAR(seldom.auc, each.auc, 1e-3) << every;
    EXPECT_GT(each.rounds, (every == 32 ? 30 : 115) * seldom.rounds);
  }
}

TEST(Coda, DriftGrowsWithThePeriodAndCodascaRemovesIt) {
  const AucProblem problem(
      {.clients = 4, .dimension = 10, .rows = 300, .positive = 0.3, .shards = Shards::sorted});
  const auto distance = [&](const char* algorithm, std::int64_t every) {
    return train(problem, algorithm, every, 0, 600).distance;
  };
  const double one = distance("coda", 1), eight = distance("coda", 8), many = distance("coda", 32);
  EXPECT_LT(one, 0.005) << "the closed form";
  EXPECT_GT(eight, 2 * one);
  EXPECT_GT(many, 2 * eight);
  EXPECT_LT(distance("codasca", 32), many / 10);
}

// Batches of one sample never have both classes.
TEST(Coda, ABatchWithoutAClassIsNoDivisionByZero) {
  const AucProblem problem({.clients = 2, .dimension = 3, .rows = 50, .positive = 0.1});
  const Settings settings = settings_of(
      "coda", problem, {.gamma = 0.05, .every = 1, .batch = 1, .stages = {.count = 5, .steps = 3}});
  for (const double value : end_of(problem, settings)) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace dear::methods::rounds::coda_test
