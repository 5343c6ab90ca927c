#include "dear/methods/rounds/settings.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/rounds/auc.h"
#include "dear/methods/rounds/logistic.h"
#include "dear/methods/rounds/quadratic.h"
#include "dear/methods/rounds/run.h"
#include "dear/methods/rounds/runs_in_test.h"

namespace dear::methods::rounds::settings_test {
namespace {

using ::testing::HasSubstr;
using testing::refusal;
using testing::settings_of;

TEST(Settings, DefaultsAreThoseOfTheory) {
  const auto problem = make_quadratic({.clients = 10, .dimension = 40, .condition = 1000});
  const Settings tamuna = settings_of("tamuna", *problem, {.cohort = 6});
  EXPECT_EQ(tamuna.owners, 2);
  EXPECT_DOUBLE_EQ(tamuna.gamma, 2 / 1.001);
  EXPECT_DOUBLE_EQ(tamuna.chi, 10.0 / 18);
  const double gained = 1 - std::pow(999.0 / 1001, 2);
  EXPECT_NEAR(tamuna.probability, std::sqrt(gained * 9 / (10.0 / 18)), 1e-12);
  const Settings scaffnew = settings_of("scaffnew", *problem);
  EXPECT_EQ(scaffnew.owners, 10);
  EXPECT_DOUBLE_EQ(scaffnew.chi, 1);
  EXPECT_NEAR(scaffnew.probability, std::sqrt(gained), 1e-12);
  const Settings averages = settings_of("fedavg", *problem);
  EXPECT_EQ(averages.every, std::llround(1 / scaffnew.probability)) << "as many steps as Scaffnew's mean";
  EXPECT_EQ(settings_of("gd", *problem).every, 1);
  EXPECT_EQ(settings_of("compressed-scaffnew", *problem, {.alpha = 0.5}).owners, 5);
}

TEST(Settings, RefuseWhatCannotBeInOneSentence) {
  const auto problem = make_quadratic({.clients = 10, .dimension = 12, .condition = 50});
  const auto alone = make_quadratic({.clients = 1});
  const AucProblem auc({.positive = 0.5});
  struct Case {
    const char* algorithm;
    const Problem* problem;
    Settings settings;
    const char* says;
  };
  for (const Case& one : std::vector<Case>{
           {"tamuna", problem.get(), {.owners = 1}, "control variates would never change"},
           {"tamuna", problem.get(), {.cohort = 4, .owners = 5}, "give from 2 to 4"},
           {"tamuna", problem.get(), {.cohort = 1}, "a cohort of 1 of 10 clients"},
           {"tamuna", problem.get(), {.cohort = 11}, "give from 2 to 10"},
           {"tamuna", alone.get(), {}, "at least 2 clients"},
           {"scaffnew", problem.get(), {.cohort = 5}, "needs all 10 clients"},
           {"scaffnew", problem.get(), {.owners = 5}, "send all coordinates"},
           {"tamuna", problem.get(), {.probability = -0.1}, "probability of a round's end is -0.1"},
           {"tamuna", problem.get(), {.probability = 1.5}, "probability of a round's end is 1.5"},
           {"tamuna", problem.get(), {.probability = NAN}, "probability of a round's end is nan"},
           {"tamuna", problem.get(), {.every = 5}, "random numbers of steps"},
           {"tamuna", problem.get(), {.gamma = -1}, "step size of -1"},
           {"tamuna", problem.get(), {.gamma = NAN}, "step size of nan"},
           {"tamuna", problem.get(), {.gamma = 2}, "give less than 2"},
           {"tamuna", problem.get(), {.owners = 2, .chi = 0.6}, "a chi of 0.6 is above 0.555556"},
           {"tamuna", problem.get(), {.chi = -0.5}, "chi is -0.5"},
           {"tamuna", problem.get(), {.alpha = 2}, "weight of reals that are sent down is 2"},
           {"tamuna", problem.get(), {.absence = 1}, "probability of absence is 1"},
           {"gd", problem.get(), {.every = 3}, "one step a round"},
           {"fedavg", problem.get(), {.every = -3}, "-3 local steps"},
           {"fedavg", problem.get(), {.batch = -3}, "a batch of -3"},
           {"coda", problem.get(), {}, "seeks a saddle point"},
           {"gd", &auc, {}, "seeks a minimum"},
           {"coda", &auc, {.gamma = 4}, "give less than 4"},
           {"coda", &auc, {.every = -1}, "-1 local steps"},
           {"coda", &auc, {.stages = {.count = 0}}, "0 stages"},
           {"coda", &auc, {.stages = {.shrink = 0.5}}, "divisor of step sizes"},
           {"coda", &auc, {.stages = {.proximal = 0}}, "proximal parameter"},
       }) {
    const std::string message =
        refusal<ConfigError>([&] { settings_of(one.algorithm, *one.problem, one.settings); });
    EXPECT_THAT(message, HasSubstr(one.says)) << one.algorithm;
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0);
  }
  EXPECT_THAT(refusal<ConfigError>([] { find_algorithm("tamunna"); }), HasSubstr("did you mean tamuna"));
  EXPECT_THAT(refusal<ConfigError>([&] { completed({}, *problem); }), HasSubstr("no algorithm"));
}

TEST(Settings, ForceTakesWhatTheoryDoesNotCover) {
  const auto problem = make_quadratic({.clients = 10, .dimension = 12, .condition = 50});
  const Settings settings =
      settings_of("tamuna", *problem, {.owners = 2, .gamma = 2.5, .chi = 0.7, .beyond_theory = true});
  EXPECT_EQ(settings.chi, 0.7);
  EXPECT_EQ(settings.gamma, 2.5);
}

// Nothing is known of it but its gradient.
class Unknown final : public Problem {
 public:
  [[nodiscard]] std::int64_t dimension() const override { return 2; }
  [[nodiscard]] int clients() const override { return 3; }
  [[nodiscard]] Constants constants() const override { return {}; }
  void gradient(int /*client*/, std::span<const double> point, const Batch& /*batch*/,
                std::span<double> out) const override {
    std::copy(point.begin(), point.end(), out.begin());
  }
  [[nodiscard]] std::vector<double> optimum() const override { return {0, 0}; }
};

TEST(Settings, AProblemWithoutConstantsNeedsNumbers) {
  EXPECT_THAT(refusal<ConfigError>([] { settings_of("tamuna", Unknown(), {.gamma = 0.1}); }),
              HasSubstr("not known to be strongly convex"));
  EXPECT_THAT(refusal<ConfigError>([] { settings_of("gd", Unknown()); }),
              HasSubstr("smoothness is not known"));
  EXPECT_EQ(settings_of("tamuna", Unknown(), {.gamma = 0.1, .probability = 0.5}).probability, 0.5);
}

TEST(Problems, ShapesThatCannotBeAreRefused) {
  EXPECT_THROW(make_quadratic({.clients = 0}), ConfigError);
  EXPECT_THROW(make_quadratic({.dimension = 0}), ConfigError);
  EXPECT_THROW(make_quadratic({.condition = 1}), ConfigError);
  EXPECT_THROW(make_logistic({.rows = 0}), ConfigError);
  EXPECT_THROW(make_logistic({.condition = NAN}), ConfigError);
  EXPECT_THROW(make_logistic({.heterogeneity = -1}), ConfigError);
}

std::vector<double> mean_gradient(const Problem& problem, const std::vector<double>& point) {
  std::vector<double> mean(point.size()), one(point.size());
  for (int client = 0; client < problem.clients(); ++client) {
    problem.gradient(client, point, {}, one);
    for (std::size_t k = 0; k < one.size(); ++k) mean[k] += one[k] / problem.clients();
  }
  return mean;
}

// A strongly convex function has one point without a gradient.
TEST(Problems, GradientsVanishAtTheOptimum) {
  const auto logistic =
      make_logistic({.clients = 20, .dimension = 60, .rows = 10, .condition = 1e4, .seed = 8});
  const auto quadratic = make_quadratic({.clients = 7, .dimension = 9, .condition = 100});
  for (const Problem* const problem : {logistic.get(), quadratic.get()})
    for (const double value : mean_gradient(*problem, problem->optimum())) EXPECT_NEAR(value, 0, 1e-15);
}

// The largest curvature of a client at 0, where that of the logistic function is largest, by differences of
// gradients, which are followed as in a power iteration.
double curvature_at_zero(const Problem& problem, int client) {
  const auto d = static_cast<std::size_t>(problem.dimension());
  std::vector<double> direction(d, 1), up(d), down(d);
  double norm = 0;
  for (int step = 0; step < 500; ++step) {
    norm = 0;
    for (const double value : direction) norm += value * value;
    norm = std::sqrt(norm);
    std::vector<double> forth(d), back(d);
    for (std::size_t k = 0; k < d; ++k) {
      forth[k] = 1e-4 * direction[k] / norm;
      back[k] = -forth[k];
    }
    problem.gradient(client, forth, {}, up);
    problem.gradient(client, back, {}, down);
    for (std::size_t k = 0; k < d; ++k) direction[k] = (up[k] - down[k]) / 2e-4;
  }
  return norm;
}

TEST(Problems, TheConditionNumberIsExact) {
  const auto problem = make_logistic({.clients = 6, .dimension = 20, .rows = 5, .condition = 500, .seed = 2});
  const Constants constants = problem->constants();
  EXPECT_NEAR(constants.condition(), 500, 1e-9);
  double largest = 0;
  for (int client = 0; client < 6; ++client) largest = std::max(largest, curvature_at_zero(*problem, client));
  EXPECT_NEAR(largest / constants.smoothness, 1, 1e-6);
  // Far out the logistic part is flat, and the ridge alone is left.
  std::vector<double> far(20, 1e4), farther(20, 1e4), one(20), other(20);
  farther[3] += 1;
  problem->gradient(0, far, {}, one);
  problem->gradient(0, farther, {}, other);
  EXPECT_NEAR((other[3] - one[3]) / constants.convexity, 1, 1e-6);
}

TEST(Problems, BatchesAreUnbiased) {
  const auto problem = make_logistic({.clients = 2, .dimension = 8, .rows = 4, .condition = 10, .seed = 2});
  const std::vector<double> point(8, 0.3);
  std::vector<double> whole(8), one(8), mean(8);
  problem->gradient(1, point, {}, whole);
  codec::Draw draw(1, 2, 3);
  constexpr int kDrawn = 20'000;
  for (int trial = 0; trial < kDrawn; ++trial) {
    problem->gradient(1, point, {.size = 2, .draw = &draw}, one);
    for (std::size_t k = 0; k < 8; ++k) mean[k] += one[k] / kDrawn;
  }
  for (std::size_t k = 0; k < 8; ++k) EXPECT_NEAR(mean[k], whole[k], 0.01);
}

TEST(Run, EndsWhereTheErrorIsReachedOrGrows) {
  const auto problem = make_quadratic({.clients = 4, .dimension = 5, .condition = 10});
  const std::vector<double> optimum = problem->optimum();
  Rounds descent(testing::alone(), *problem, settings_of("gd", *problem));
  int milestones = 0;
  const Outcome reached = run_to(descent, optimum, {.error = 1e-6}, [&](const Milestone&) { ++milestones; });
  EXPECT_EQ(reached.end, End::reached);
  EXPECT_LE(reached.last.error, 1e-6);
  EXPECT_EQ(milestones, std::ssize(reached.milestones));
  EXPECT_EQ(reached.milestones.back().counts.rounds, reached.last.counts.rounds);
  Rounds few(testing::alone(), *problem, settings_of("gd", *problem));
  EXPECT_EQ(run_to(few, optimum, {.error = 1e-6, .rounds = 3}).last.counts.rounds, 3);
  Rounds growing(testing::alone(), *problem,
                 settings_of("gd", *problem, {.gamma = 5, .beyond_theory = true}));
  EXPECT_EQ(run_to(growing, optimum, {}).end, End::diverged);
  Rounds there(testing::alone(), *problem, settings_of("gd", *problem), optimum);
  EXPECT_THROW(run_to(there, optimum, {}), ConfigError);
  EXPECT_THROW(Rounds(testing::alone(), *problem, settings_of("gd", *problem), std::vector<double>(3)),
               ConfigError);
}

}  // namespace
}  // namespace dear::methods::rounds::settings_test
