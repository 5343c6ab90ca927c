#include "dear/methods/rounds/algorithms.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/ids.h"
#include "dear/methods/rounds/logistic.h"
#include "dear/methods/rounds/quadratic.h"
#include "dear/methods/rounds/run.h"
#include "dear/methods/rounds/runs_in_test.h"

namespace dear::methods::rounds::algorithms_test {
namespace {

using testing::models_of;
using testing::settings_of;
using Vector = std::vector<double>;
using Vectors = std::vector<Vector>;

double distance(std::span<const double> one, std::span<const double> other) {
  double largest = 0;
  for (std::size_t i = 0; i < one.size(); ++i) largest = std::max(largest, std::abs(one[i] - other[i]));
  return largest;
}

Vector gradient_of(const Problem& problem, int client, const Vector& x) {
  Vector out(x.size());
  problem.gradient(client, x, {}, out);
  return out;
}

// Scaffnew, CompressedScaffnew and TAMUNA as their papers write them down: every client keeps a point, idle
// ones too, a matrix holds the mask, all is dense. What was drawn comes from the run: how many steps, and the
// column of each client.
class Textbook {
 public:
  Textbook(const Problem& problem, const Settings& settings)
      : problem_(problem),
        settings_(settings),
        x_(index_of(problem.clients()), Vector(static_cast<std::size_t>(problem.dimension()))),
        h_(x_) {}

  void round(const Round& drawn) {
    const auto d = static_cast<int>(problem_.dimension());
    const int c = static_cast<int>(drawn.senders.size());
    const std::vector<std::vector<bool>> q = mask(d, c, settings_.owners);
    for (std::int64_t step = 0; step < drawn.steps; ++step)
      for (const Sender& sender : drawn.senders) {
        Vector& x = x_[index_of(sender.client)];
        const Vector g = gradient_of(problem_, sender.client, x);
        for (std::size_t k = 0; k < x.size(); ++k)
          x[k] = x[k] - settings_.gamma * g[k] + settings_.gamma * h_[index_of(sender.client)][k];
      }
    Vector mean(index_of(d));
    for (std::size_t k = 0; k < mean.size(); ++k) {
      for (const Sender& sender : drawn.senders)
        if (q[k][index_of(sender.column)]) mean[k] += x_[index_of(sender.client)][k];
      mean[k] /= settings_.owners;
      for (const Sender& sender : drawn.senders)
        if (q[k][index_of(sender.column)])
          h_[index_of(sender.client)][k] += settings_.probability * settings_.chi / settings_.gamma *
                                            (mean[k] - x_[index_of(sender.client)][k]);
    }
    for (Vector& x : x_) x = mean;
  }
  [[nodiscard]] const Vector& model() const { return x_[0]; }
  [[nodiscard]] const Vector& control(int client) const { return h_[index_of(client)]; }

 private:
  static std::vector<std::vector<bool>> mask(int d, int c, int s) {
    std::vector<std::vector<bool>> q(index_of(d), std::vector<bool>(index_of(c)));
    if (d * s < c) {
      for (int j = 0; j < d * s; ++j) q[index_of(j % d)][index_of(j)] = true;
      return q;
    }
    for (int k = 0, j = 0; k < d; ++k)
      for (int one = 0; one < s; ++one, j = (j + 1) % c) q[index_of(k)][index_of(j)] = true;
    return q;
  }

  const Problem& problem_;
  Settings settings_;
  Vectors x_, h_;
};

TEST(Algorithms, EqualTheTextbookIterateByIterate) {
  const auto logistic =
      make_logistic({.clients = 10, .dimension = 23, .rows = 6, .condition = 100, .seed = 3});
  const auto flat = make_quadratic({.clients = 10, .dimension = 2, .condition = 20, .seed = 3});
  struct Case {
    const char* algorithm;
    const Problem* problem;
    Settings settings;
  };
  for (const Case& one :
       {Case{"scaffnew", logistic.get(), {}}, Case{"compressed-scaffnew", logistic.get(), {}},
        Case{"compressed-scaffnew", logistic.get(), {.owners = 7}},
        Case{"tamuna", logistic.get(), {.cohort = 4}},
        Case{"tamuna", logistic.get(), {.cohort = 7, .owners = 3, .chi = 0.5}},
        Case{"tamuna", flat.get(), {.cohort = 9, .owners = 2}}}) {  // columns without ones
    SCOPED_TRACE(::testing::Message() << one.algorithm << " " << one.settings.cohort);
    const Settings settings = settings_of(one.algorithm, *one.problem, one.settings);
    Rounds run(testing::alone(), *one.problem, settings);
    Textbook textbook(*one.problem, settings);
    for (int round = 0; round < 60; ++round) {
      run.next();
      textbook.round(run.last_round());
      ASSERT_LT(distance(run.model(), textbook.model()), 1e-12) << round;
      for (int client = 0; client < 10; ++client)
        ASSERT_LT(distance(run.control_of(client), textbook.control(client)), 1e-12) << round;
    }
  }
}

TEST(Algorithms, GradientDescentAndAveragesEqualTheTextbook) {
  const auto problem = make_logistic({.clients = 6, .dimension = 15, .condition = 50, .seed = 2});
  Rounds descent(testing::alone(), *problem, settings_of("gd", *problem));
  const Settings averages = settings_of("fedavg", *problem, {.cohort = 4, .every = 5});
  Rounds averaged(testing::alone(), *problem, averages);
  const double gamma = 2 / (problem->constants().smoothness + problem->constants().convexity);
  Vector x(15), y(15);
  for (int round = 0; round < 40; ++round) {
    Vector sum(15);
    for (int client = 0; client < 6; ++client) {
      const Vector g = gradient_of(*problem, client, x);
      for (std::size_t k = 0; k < 15; ++k) sum[k] += g[k];
    }
    for (std::size_t k = 0; k < 15; ++k) x[k] -= gamma * sum[k] / 6;
    descent.next();
    ASSERT_LT(distance(descent.model(), x), 1e-12);

    averaged.next();
    Vector points(15);
    for (const Sender& sender : averaged.last_round().senders) {
      Vector own = y;
      for (int step = 0; step < 5; ++step) {
        const Vector g = gradient_of(*problem, sender.client, own);
        for (std::size_t k = 0; k < 15; ++k) own[k] -= gamma * g[k];
      }
      for (std::size_t k = 0; k < 15; ++k) points[k] += own[k] / 4;
    }
    y = points;
    ASSERT_LT(distance(averaged.model(), y), 1e-12);
  }
}

// Scaffold, its second option, as its paper writes it down: c_i and c, and the server adds their changes.
TEST(Algorithms, ScaffoldEqualsTheTextbook) {
  const auto problem = make_logistic({.clients = 6, .dimension = 15, .condition = 50, .seed = 2});
  const Settings settings = settings_of("scaffold", *problem, {.cohort = 4, .gamma = 0.02, .every = 5});
  Rounds run(testing::alone(), *problem, settings);
  Vector x(15), c(15);
  Vectors own(6, Vector(15));
  for (int round = 0; round < 60; ++round) {
    run.next();
    Vector move(15), change(15);
    for (const Sender& sender : run.last_round().senders) {
      Vector& direction = own[index_of(sender.client)];
      Vector y = x;
      for (int step = 0; step < 5; ++step) {
        const Vector g = gradient_of(*problem, sender.client, y);
        for (std::size_t k = 0; k < 15; ++k) y[k] -= 0.02 * (g[k] - direction[k] + c[k]);
      }
      for (std::size_t k = 0; k < 15; ++k) {
        const double renewed = direction[k] - c[k] + (x[k] - y[k]) / (5 * 0.02);
        change[k] += renewed - direction[k];
        move[k] += y[k] - x[k];
        direction[k] = renewed;
      }
    }
    for (std::size_t k = 0; k < 15; ++k) {
      x[k] += move[k] / 4;
      c[k] += change[k] / 6;
    }
    ASSERT_LT(distance(run.model(), x), 1e-12) << round;
    Vector control = own[3];
    for (std::size_t k = 0; k < 15; ++k) control[k] -= c[k];
    ASSERT_LT(distance(run.control_of(3), control), 1e-12) << round;
  }
}

TEST(Algorithms, OneIsTheLimitOfAnother) {
  const auto problem = make_logistic({.clients = 8, .dimension = 20, .condition = 100, .seed = 3});
  const auto models = [&](const char* algorithm, const Settings& settings) {
    return models_of(*problem, settings_of(algorithm, *problem, settings), 50);
  };
  EXPECT_EQ(models("tamuna", {.owners = 3}), models("compressed-scaffnew", {.owners = 3})) << "cohort of all";
  EXPECT_EQ(models("compressed-scaffnew", {.owners = 8}), models("scaffnew", {})) << "mask of all";
  const Vectors one_step = models("scaffnew", {.probability = 1}), descent = models("gd", {});
  for (std::size_t round = 0; round < descent.size(); ++round)
    EXPECT_LT(distance(one_step[round], descent[round]), 1e-12) << round;
  EXPECT_EQ(models("fedavg", {.every = 4}), models("local-sgd", {.every = 4}));
  EXPECT_EQ(models("local-sgd", {.every = 1}), models("gd", {})) << "one step a round";
}

Outcome run(const Problem& problem, const char* algorithm, const Settings& settings, const Target& target) {
  Rounds rounds(testing::alone(), problem, settings_of(algorithm, problem, settings));
  return run_to(rounds, problem.optimum(), target);
}

TEST(Algorithms, ControlVariatesReachTheExactMinimumWhereAveragesStall) {
  const auto problem =
      make_logistic({.clients = 20, .dimension = 40, .rows = 6, .condition = 200, .seed = 1});
  const Target exact{.error = 1e-20, .rounds = 20'000};
  for (const auto& [algorithm, settings] :
       {std::pair("scaffnew", Settings{}), std::pair("compressed-scaffnew", Settings{}),
        std::pair("tamuna", Settings{.cohort = 5}),
        std::pair("tamuna", Settings{.cohort = 5, .absence = 0.2}),
        std::pair("scaffold", Settings{.every = 4})}) {
    const Outcome outcome = run(*problem, algorithm, settings, exact);
    EXPECT_EQ(outcome.end, End::reached) << algorithm << " " << outcome.last.error;
    EXPECT_LT(outcome.control_sum, 1e-12) << algorithm;
  }
  const Outcome averages = run(*problem, "fedavg", {}, exact);
  EXPECT_EQ(averages.end, End::stalled);
  EXPECT_GT(averages.last.error, 1e-4);
}

TEST(Algorithms, ControlVariatesSumToZeroInEveryRound) {
  const auto problem = make_logistic({.clients = 12, .dimension = 30, .condition = 1000, .seed = 5});
  for (const auto& [algorithm, settings] :
       {std::pair("scaffnew", Settings{}), std::pair("compressed-scaffnew", Settings{}),
        std::pair("tamuna", Settings{.cohort = 5}),
        std::pair("tamuna", Settings{.cohort = 5, .absence = 0.3}),
        std::pair("tamuna", Settings{.cohort = 5, .batch = 1}),
        std::pair("scaffold", Settings{.cohort = 5, .absence = 0.5})}) {
    Rounds rounds(testing::alone(), *problem, settings_of(algorithm, *problem, settings));
    for (int round = 0; round < 200; ++round) {
      rounds.next();
      ASSERT_LE(rounds.control_sum(), 1e-12) << algorithm << " " << round;
    }
  }
}

// Both accelerations on the problem with 20 clients: by local steps, and by masks, with one minimum in
// between.
TEST(Algorithms, RealsSentHaveASingleMinimumInTheNumberOfOwners) {
  const auto problem = make_logistic({.clients = 20, .dimension = 60, .rows = 10, .condition = 1000});
  const auto up = [&](const char* algorithm, const Settings& settings) {
    const Outcome outcome = run(*problem, algorithm, settings, {.error = 1e-12});
    EXPECT_EQ(outcome.end, End::reached);
    return outcome.last.counts;
  };
  const std::int64_t descent = up("gd", {}).up;
  std::vector<std::int64_t> reals, with_downlink;
  for (const int owners : {2, 3, 4, 10, 20}) {
    const Counts counts = up("compressed-scaffnew", {.owners = owners});
    reals.push_back(counts.up);
    with_downlink.push_back(counts.up + counts.down / 10);
    EXPECT_EQ(counts.down, 60 * counts.rounds);
    EXPECT_EQ(counts.up, counts.rounds * ((owners * 60 + 19) / 20)) << "ceil(s d / c) a round";
  }
  const auto single_minimum = [](const std::vector<std::int64_t>& values) {
    const auto least = std::min_element(values.begin(), values.end());
    EXPECT_TRUE(std::is_sorted(values.begin(), least + 1, std::greater<>()))
        << ::testing::PrintToString(values);
    EXPECT_TRUE(std::is_sorted(least, values.end())) << ::testing::PrintToString(values);
    return least - values.begin();
  };
  const auto best = single_minimum(reals);
  EXPECT_TRUE(best == 1 || best == 2) << "3 or 4 owners";
  EXPECT_GT(single_minimum(with_downlink), best) << "more owners where what is sent down counts";
  EXPECT_GT(descent, 15 * reals.back()) << "by local steps";
  EXPECT_GT(descent, 25 * *std::min_element(reals.begin(), reals.end())) << "and by masks";
}

// Rounds do not depend on the cohort, reals of a client are those of all times clients / cohort.
TEST(Algorithms, ACohortTakesAsManyRoundsAndItsClientsSendMore) {
  const auto problem = make_logistic({.clients = 20, .dimension = 60, .rows = 10, .condition = 1000});
  const Counts all = run(*problem, "tamuna", {.owners = 4}, {.error = 1e-12}).last.counts;
  const Counts fifth = run(*problem, "tamuna", {.cohort = 4, .owners = 4}, {.error = 1e-12}).last.counts;
  EXPECT_NEAR(static_cast<double>(fifth.rounds) / static_cast<double>(all.rounds), 1, 0.15);
  EXPECT_EQ(fifth.up, 60 * fifth.rounds);
  EXPECT_EQ(all.up, 12 * all.rounds);
}

// The problem of 100 clients, 300 dimensions and kappa = 10,000: 45 to 160 times fewer reals than gradient
// descent.
TEST(AlgorithmsAtLength, SendFewerRealsThanGradientDescent) {
  const auto problem = make_logistic({});
  const auto up = [&](const char* algorithm, const Settings& settings) {
    return static_cast<double>(run(*problem, algorithm, settings, {}).last.counts.up);
  };
  const double descent = up("gd", {});
  EXPECT_GT(descent / up("scaffnew", {}), 45);
  const double ten = up("compressed-scaffnew", {.owners = 10}),
               four = up("compressed-scaffnew", {.owners = 4}),
               two = up("compressed-scaffnew", {.owners = 2});
  EXPECT_GT(descent / ten, 120);
  EXPECT_GT(descent / four, 155);
  EXPECT_GT(two, four);
  EXPECT_GT(descent / up("tamuna", {.cohort = 20, .owners = 4}), 30);
}

}  // namespace
}  // namespace dear::methods::rounds::algorithms_test
