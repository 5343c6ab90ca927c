#include "dear/methods/rounds/theory.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/ids.h"
#include "dear/methods/rounds/quadratic.h"
#include "dear/methods/rounds/runs_in_test.h"

namespace dear::methods::rounds::theory_test {
namespace {

TEST(Theory, ConstantsAsAPencilSays) {
  EXPECT_DOUBLE_EQ(largest_chi(10, 10), 1);
  EXPECT_DOUBLE_EQ(largest_chi(10, 2), 10.0 / 18);
  const Constants constants{.smoothness = 4, .convexity = 1};
  EXPECT_DOUBLE_EQ(best_gamma(constants), 0.4);
  // (3/5)^2 = 1 - p^2 chi (s-1)/(n-1), so p^2 = 0.64 * 9 / 4 > 1 with s = 5, chi = 1.
  EXPECT_DOUBLE_EQ(best_probability(10, 5, 1, constants), 1);
  EXPECT_NEAR(best_probability(10, 10, 1, constants), 0.8, 1e-15);
  const Shifts balanced{.clients = 10, .owners = 10, .gamma = 0.4, .probability = 0.8, .chi = 1};
  EXPECT_NEAR(rate_of(balanced, constants), 0.36, 1e-15);
  EXPECT_EQ(best_owners(100, 300, 0), 2);
  EXPECT_EQ(best_owners(100, 300, 0.1), 10);
  EXPECT_EQ(best_owners(100, 10, 0), 10);
  EXPECT_EQ(best_owners(2, 1, 1), 2);
}

// One coordinate of `n` clients with f_i(x) = curvature_i / 2 (x - minimum_i)^2.
struct State {
  std::vector<double> curvature, minimum, x, h;
};

State draw_state(std::mt19937_64& random, int n, double convexity) {
  std::normal_distribution<double> normal;
  State state;
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    state.curvature.push_back(random() % 2 == 0 ? 1 : convexity);
    state.minimum.push_back(normal(random));
    state.x.push_back(normal(random));
    state.h.push_back(normal(random));
    sum += state.h.back();
  }
  for (double& h : state.h) h -= sum / n;
  return state;
}

class OneStep {
 public:
  OneStep(State state, const Shifts& shifts) : state_(std::move(state)), shifts_(shifts) {
    double weighted = 0, weight = 0;
    for (std::size_t i = 0; i < state_.x.size(); ++i) {
      weighted += state_.curvature[i] * state_.minimum[i];
      weight += state_.curvature[i];
    }
    best_ = weighted / weight;
  }
  [[nodiscard]] double psi() const { return psi_of(state_.x, state_.h); }
  // The expectation of Psi after one step: both sides of the coin, and every set of owners, one by one.
  [[nodiscard]] double expected_psi() const {
    std::vector<double> moved = state_.x;
    for (std::size_t i = 0; i < moved.size(); ++i)
      moved[i] -= shifts_.gamma * (gradient(i, state_.x[i]) - state_.h[i]);
    double together = 0;
    int sets = 0;
    for (std::uint32_t set = 0; set < 1U << moved.size(); ++set) {
      if (__builtin_popcount(set) != shifts_.owners) continue;
      ++sets;
      together += psi_after(moved, set);
    }
    const double p = shifts_.probability;
    return p * together / sets + (1 - p) * psi_of(moved, state_.h);
  }

 private:
  [[nodiscard]] double gradient(std::size_t i, double x) const {
    return state_.curvature[i] * (x - state_.minimum[i]);
  }
  [[nodiscard]] double psi_of(const std::vector<double>& x, const std::vector<double>& h) const {
    const double n = shifts_.clients, p = shifts_.probability;
    double points = 0, shifts = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      points += std::pow(x[i] - best_, 2);
      shifts += std::pow(h[i] - gradient(i, best_), 2);
    }
    return points / shifts_.gamma +
           shifts_.gamma / (p * p * shifts_.chi) * (n - 1) / (shifts_.owners - 1) * shifts;
  }
  [[nodiscard]] double psi_after(const std::vector<double>& moved, std::uint32_t set) const {
    double mean = 0;
    for (std::size_t i = 0; i < moved.size(); ++i)
      if ((set >> i & 1) != 0) mean += moved[i] / shifts_.owners;
    std::vector<double> h = state_.h;
    for (std::size_t i = 0; i < moved.size(); ++i)
      if ((set >> i & 1) != 0) h[i] += shifts_.probability * shifts_.chi / shifts_.gamma * (mean - moved[i]);
    return psi_of(std::vector<double>(moved.size(), mean), h);
  }

  State state_;
  Shifts shifts_;
  double best_ = 0;
};

// How much E Psi after a step exceeds tau Psi, at worst of many states, relative to Psi.
double worst_excess(Shifts shifts, double tau_of_clients, double convexity) {
  const Constants constants{.smoothness = 1, .convexity = convexity};
  std::mt19937_64 random(7);
  shifts.gamma = best_gamma(constants);
  Shifts of_tau = shifts;
  of_tau.clients = static_cast<int>(tau_of_clients);
  const double tau = rate_of(of_tau, constants);
  double worst = -1;
  for (int trial = 0; trial < 60; ++trial) {
    const OneStep step(draw_state(random, shifts.clients, convexity), shifts);
    worst = std::max(worst, step.expected_psi() / step.psi() - tau);
  }
  return worst;
}

TEST(Theory, OneStepShrinksPsiByTauAsEnumerationShows) {
  for (const int n : {2, 5, 8})
    for (int s = 2; s <= n; ++s)
      for (const double p : {0.1, 0.5, 1.0})
        for (const double part : {0.5, 1.0}) {
          SCOPED_TRACE(::testing::Message() << n << " " << s << " " << p << " " << part);
          const Shifts shifts{.clients = n, .owners = s, .probability = p, .chi = part * largest_chi(n, s)};
          EXPECT_LE(worst_excess(shifts, n, 0.02), 1e-12);
        }
}

TEST(Theory, TheInequalityFailsWithALargerChiAndWithTheBoundOfACohort) {
  const Shifts larger{.clients = 8, .owners = 2, .probability = 0.5, .chi = 2.2 * largest_chi(8, 2)};
  EXPECT_GT(worst_excess(larger, 8, 0.02), 0.01);
  // A tau with the size of the cohort, 2, for that of all clients.
  const Shifts shifts{.clients = 8, .owners = 2, .probability = 0.5, .chi = largest_chi(8, 2)};
  EXPECT_GT(worst_excess(shifts, 2, 0.02), 0.01);
}

double psi_of(const Rounds& run, const Problem& problem, const Settings& settings) {
  const std::vector<double> best = problem.optimum();
  const auto n = static_cast<double>(problem.clients());
  double points = 0, shifts = 0;
  std::vector<double> gradient(best.size());
  for (int client = 0; client < problem.clients(); ++client) {
    problem.gradient(client, best, {}, gradient);
    const std::vector<double> control = run.control_of(client);
    for (std::size_t i = 0; i < best.size(); ++i) {
      points += std::pow(run.model()[i] - best[i], 2);
      shifts += std::pow(control[i] - gradient[i], 2);
    }
  }
  return points / settings.gamma + settings.gamma / (std::pow(settings.probability, 2) * settings.chi) *
                                       (n - 1) / (settings.owners - 1) * shifts;
}

// The mean of Psi after each round, over many seeds.
std::vector<double> mean_psi(const Problem& problem, Settings settings, int seeds, int rounds) {
  std::vector<double> mean(index_of(rounds) + 1);
  for (int seed = 0; seed < seeds; ++seed) {
    settings.seed = static_cast<std::uint64_t>(seed) + 1;
    Rounds run(testing::alone(), problem, settings);
    mean[0] += psi_of(run, problem, settings) / seeds;
    for (std::size_t round = 1; round < mean.size(); ++round) {
      run.next();
      mean[round] += psi_of(run, problem, settings) / seeds;
    }
  }
  return mean;
}

// The slope of log(values) by least squares.
double log_slope(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double xy = 0, xx = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = static_cast<double>(i) - (count - 1) / 2;
    xy += x * std::log(values[i]);
    xx += x * x;
  }
  return xy / xx;
}

// A round has t steps with probability p (1-p)^(t-1), so E Psi shrinks by p tau / (1 - (1-p) tau) in it.
TEST(Theory, RunsConvergeAtLeastAsFastAsTau) {
  const auto problem = make_quadratic({.clients = 10, .dimension = 12, .condition = 50, .seed = 4});
  struct Case {
    int cohort, owners;
  };
  for (const Case& one : {Case{10, 10}, Case{10, 3}, Case{5, 2}, Case{2, 2}}) {
    SCOPED_TRACE(::testing::Message() << one.cohort << " " << one.owners);
    const Settings settings =
        testing::settings_of("tamuna", *problem, {.cohort = one.cohort, .owners = one.owners});
    const double tau = rate_of({.clients = 10,
                                .owners = one.owners,
                                .gamma = settings.gamma,
                                .probability = settings.probability,
                                .chi = settings.chi},
                               problem->constants());
    const double p = settings.probability;
    const double of_round = p * tau / (1 - (1 - p) * tau);
    EXPECT_GE(-log_slope(mean_psi(*problem, settings, 60, 60)), 0.95 * -std::log(of_round));
  }
}

TEST(Theory, AChiBeyondTheBoundDiverges) {
  const auto problem = make_quadratic({.clients = 10, .dimension = 12, .condition = 50, .seed = 4});
  Settings settings = testing::settings_of("tamuna", *problem, {.cohort = 10, .owners = 5, .probability = 1});
  settings.chi *= 2.2;
  settings.beyond_theory = true;
  const std::vector<double> psi = mean_psi(*problem, settings, 4, 400);
  EXPECT_GT(psi.back(), 1000 * psi.front());
}

}  // namespace
}  // namespace dear::methods::rounds::theory_test
