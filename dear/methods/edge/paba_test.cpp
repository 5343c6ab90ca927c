#include "dear/methods/edge/paba.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/methods/edge/groups_in_test.h"

namespace dear::methods::edge::paba_test {
namespace {

using ::testing::HasSubstr;
using testing::random_problem;
using testing::refusal;

double total(const std::vector<double>& blocks) { return std::accumulate(blocks.begin(), blocks.end(), 0.0); }

double seconds(const PabaProblem& problem, const char* scheme) { return solve_paba(problem, scheme).seconds; }

// The model of the page, written again: the slower of two groups of one worker each, which have these shares
// of the parameters, the bandwidth down and up.
double slower_of_two(const PabaProblem& problem, double parameters, double down, double up) {
  const auto one = [&](const Worker& w, double p, double d, double u) {
    const double block = p * static_cast<double>(problem.parameters);
    const double bits = block * problem.bits_per_parameter;
    return w.overhead_seconds + bits / (d * problem.bandwidth_down_hz * w.efficiency_down) +
           block * w.cycles_per_parameter / w.frequency_hz +
           bits / (u * problem.bandwidth_up_hz * w.efficiency_up);
  };
  return std::max(one(problem.groups[0][0], parameters, down, up),
                  one(problem.groups[1][0], 1 - parameters, 1 - down, 1 - up));
}

struct Grid {
  double best = INFINITY;
  double at[3] = {0.5, 0.5, 0.5};
};
// Brute force: a grid of all three shares, whose best cell gets a finer grid, again and again.
Grid brute_force(const PabaProblem& problem, bool parameters_too) {
  constexpr int kPoints = 21;
  Grid grid;
  double width = 0.5;
  for (int level = 0; level < 40; ++level, width *= 0.6) {
    const Grid around = grid;
    for (int p = 0; p < (parameters_too ? kPoints : 1); ++p)
      for (int d = 0; d < kPoints; ++d)
        for (int u = 0; u < kPoints; ++u) {
          const int steps[] = {parameters_too ? p : kPoints / 2, d, u};
          double at[3];
          bool inside = true;
          for (int axis = 0; axis < 3; ++axis) {
            at[axis] = around.at[axis] + width * (2.0 * steps[axis] / (kPoints - 1) - 1);
            inside = inside && at[axis] > 0 && at[axis] < 1;
          }
          if (!inside) continue;
          const double value = slower_of_two(problem, at[0], at[1], at[2]);
          if (value < grid.best) {
            grid.best = value;
            std::copy(at, at + 3, grid.at);
          }
        }
  }
  return grid;
}

TEST(Paba, OfTwoGroupsIsTheBestOfAGridOfAllShares) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed)
    for (const double overhead : {0.0, 1.0}) {
      const PabaProblem problem = random_problem(2, 1, seed, overhead);
      for (const bool joint : {false, true}) {
        const Grid grid = brute_force(problem, joint);
        const PabaPlan plan = solve_paba(problem, joint ? "joint" : "bandwidth");
        EXPECT_LE(plan.seconds, grid.best * (1 + 1e-9)) << "seed " << seed << ", joint " << joint;
        EXPECT_NEAR(plan.seconds, grid.best, 2e-4 * grid.best) << "seed " << seed << ", joint " << joint;
        EXPECT_NEAR(plan.bound_seconds, plan.seconds, 1e-9 * plan.seconds);
      }
    }
}

TEST(Paba, CertifiesEveryRandomProblemAndIsNeverSlowerThanItsParts) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const int groups = 1 + static_cast<int>(seed % 12), workers = 1 + static_cast<int>(seed % 4);
    const PabaProblem problem = random_problem(groups, workers, seed, seed % 2 == 0 ? 0.05 : 0.0);
    const PabaPlan joint = solve_paba(problem, "joint");
    EXPECT_LT(joint.residual, 1e-6) << "seed " << seed;
    EXPECT_LE(joint.bound_seconds, joint.seconds * (1 + 1e-12)) << "seed " << seed;
    EXPECT_LE(joint.seconds, joint.bound_seconds * (1 + 1e-9)) << "seed " << seed;
    EXPECT_NEAR(total(joint.blocks), 1e6, 1e-3);
    double down = 0, up = 0;
    for (const auto& group : joint.bandwidth)
      for (const Bandwidth& one : group) {
        down += one.down_hz;
        up += one.up_hz;
      }
    EXPECT_LE(down, 1e7 * (1 + 1e-12));
    EXPECT_LE(up, 4e6 * (1 + 1e-12));
    const double parameters = seconds(problem, "parameters");
    const PabaPlan bandwidth = solve_paba(problem, "bandwidth");
    const double equal = seconds(problem, "equal");
    EXPECT_LT(bandwidth.residual, 1e-6) << "seed " << seed;
    EXPECT_LE(joint.seconds, parameters * (1 + 1e-9)) << "seed " << seed;
    EXPECT_LE(joint.seconds, bandwidth.seconds * (1 + 1e-9)) << "seed " << seed;
    EXPECT_LE(parameters, equal * (1 + 1e-9)) << "seed " << seed;
    EXPECT_LE(bandwidth.seconds, equal * (1 + 1e-9)) << "seed " << seed;
  }
}

TEST(Paba, NoStepOfARandomWalkIsFaster) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    const PabaProblem problem = random_problem(4, 2, seed, 0.1);
    const PabaPlan plan = solve_paba(problem, "joint");
    for (int step = 0; step < 2000; ++step) {
      const double size = std::pow(10.0, -1 - step % 5);
      std::vector<double> blocks = plan.blocks;
      Bandwidths bandwidth = plan.bandwidth;
      double down = 0, up = 0;
      for (double& block : blocks) block *= std::exp(size * normal(random));
      const double scale = total(plan.blocks) / total(blocks);
      for (double& block : blocks) block *= scale;
      for (auto& group : bandwidth)
        for (Bandwidth& one : group) {
          down += one.down_hz *= std::exp(size * normal(random));
          up += one.up_hz *= std::exp(size * normal(random));
        }
      for (auto& group : bandwidth)
        for (Bandwidth& one : group) {
          one.down_hz *= problem.bandwidth_down_hz / down;
          one.up_hz *= problem.bandwidth_up_hz / up;
        }
      ASSERT_GE(seconds_of(problem, blocks, bandwidth), plan.seconds * (1 - 1e-9)) << "seed " << seed;
    }
  }
}

// T = L / sum_k 1/t_k, without overheads.
TEST(Paba, OfParametersAloneIsTheClosedForm) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const PabaProblem problem = random_problem(7, 3, seed);
    double rate = 0;
    for (const auto& group : problem.groups) {
      double slowest = 0;
      for (const Worker& w : group)
        slowest =
            std::max(slowest, 32 / (1e7 / 21 * w.efficiency_down) + w.cycles_per_parameter / w.frequency_hz +
                                  32 / (4e6 / 21 * w.efficiency_up));
      rate += 1 / slowest;
    }
    EXPECT_NEAR(seconds(problem, "parameters"), 1e6 / rate, 1e-9 * 1e6 / rate);
  }
}

TEST(Paba, ParametersGainNothingAfterBandwidth) {
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const PabaProblem problem = random_problem(6, 2, seed);
    const double first = seconds(problem, "bandwidth");
    EXPECT_NEAR(seconds(problem, "bandwidth-then-parameters"), first, 1e-9 * first)
        << "all workers end together already";
    EXPECT_LT(seconds(problem, "joint"), 0.99 * first) << "so one after the other is not both";
  }
}

TEST(Paba, OfAlikeWorkersAreEqualByEveryScheme) {
  PabaProblem problem = random_problem(1, 1, 3);
  problem.groups.assign(5, std::vector<Worker>(3, problem.groups[0][0]));
  const double equal = seconds(problem, "equal");
  for (const PabaScheme& scheme : paba_schemes()) {
    const PabaPlan plan = solve_paba(problem, scheme.name);
    EXPECT_NEAR(plan.seconds, equal, 1e-9 * equal) << scheme.name;
    for (const double block : plan.blocks) EXPECT_NEAR(block, 2e5, 1) << scheme.name;
  }
}

TEST(Paba, IsFasterWithMoreBandwidthOrFrequencyAndSlowerWithMoreParameters) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed)
    for (const char* scheme : {"parameters", "bandwidth", "joint"}) {
      const PabaProblem problem = random_problem(5, 2, seed, 0.02);
      const double before = seconds(problem, scheme);
      PabaProblem changed = problem;
      changed.bandwidth_down_hz *= 1.01;
      EXPECT_LT(seconds(changed, scheme), before) << scheme;
      changed = problem;
      changed.bandwidth_up_hz *= 1.01;
      EXPECT_LT(seconds(changed, scheme), before) << scheme;
      changed = problem;
      for (auto& group : changed.groups)
        for (Worker& worker : group) worker.frequency_hz *= 1.01;
      EXPECT_LT(seconds(changed, scheme), before) << scheme;
      changed = problem;
      changed.parameters += 10'000;
      EXPECT_GT(seconds(changed, scheme), before) << scheme;
    }
}

TEST(Paba, RoundsToWholeParameters) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    PabaProblem problem = random_problem(6, 2, seed);
    problem.parameters = seed <= 10 ? 6 + static_cast<std::int64_t>(seed) : 10'007;
    const PabaPlan plan = solve_paba(problem, "joint");
    EXPECT_EQ(std::accumulate(plan.whole.begin(), plan.whole.end(), std::int64_t{0}), problem.parameters);
    double one_more = 0;
    for (std::size_t group = 0; group < plan.whole.size(); ++group) {
      EXPECT_GE(plan.whole[group], 0);
      if (plan.blocks[group] > 0) one_more = std::max(one_more, plan.seconds / plan.blocks[group]);
    }
    EXPECT_GE(plan.whole_seconds, plan.seconds * (1 - 1e-9));
    EXPECT_LE(plan.whole_seconds, plan.seconds + one_more * (1 + 1e-9));
  }
}

TEST(Paba, OfWidelyDifferentSizesEnds) {
  for (const double scale : {1e-6, 1e6}) {
    PabaProblem problem = random_problem(8, 2, 5);
    problem.groups[0][0].frequency_hz *= scale;
    problem.groups[1][1].efficiency_up *= scale;
    problem.bandwidth_down_hz *= scale;
    const PabaPlan plan = solve_paba(problem, "joint");
    EXPECT_LE(plan.seconds, plan.bound_seconds * (1 + 1e-6));
    EXPECT_LE(plan.seconds, seconds(problem, "parameters") * (1 + 1e-9));
  }
}

TEST(Paba, ThatCannotBeIsRefusedInOneSentence) {
  const PabaProblem good = random_problem(3, 2, 1);
  struct Refusal {
    void (*spoil)(PabaProblem&);
    const char* says;
  };
  for (const Refusal& one : std::vector<Refusal>{
           {[](PabaProblem& p) { p.groups.clear(); }, "no group of workers"},
           {[](PabaProblem& p) { p.groups[0].clear(); }, "group 0 has no worker"},
           {[](PabaProblem& p) { p.groups[1].pop_back(); }, "group 1 has 1 workers, but group 0 has 2"},
           {[](PabaProblem& p) { p.parameters = 0; }, "parameters is 0"},
           {[](PabaProblem& p) { p.parameters = 2; }, "3 groups cannot share 2 parameters"},
           {[](PabaProblem& p) { p.bits_per_parameter = 0; }, "bits_per_parameter is 0"},
           {[](PabaProblem& p) { p.bandwidth_down_hz = -1; }, "bandwidth_down_hz is -1"},
           {[](PabaProblem& p) { p.bandwidth_up_hz = NAN; }, "bandwidth_up_hz is nan"},
           {[](PabaProblem& p) { p.groups[2][1].frequency_hz = 0; },
            "frequency_hz of worker 1 of group 2 is 0"},
           {[](PabaProblem& p) { p.groups[0][1].efficiency_up = 0; }, "a worker without a channel"},
           {[](PabaProblem& p) { p.groups[0][1].efficiency_down = INFINITY; }, "efficiency_down"},
           {[](PabaProblem& p) { p.groups[0][0].cycles_per_parameter = -2; }, "cycles_per_parameter"},
           {[](PabaProblem& p) { p.groups[0][0].overhead_seconds = NAN; }, "overhead_seconds"},
       }) {
    PabaProblem bad = good;
    one.spoil(bad);
    for (const PabaScheme& scheme : paba_schemes()) {
      const std::string said = refusal([&] { solve_paba(bad, scheme.name); });
      EXPECT_THAT(said, HasSubstr(one.says));
      EXPECT_EQ(said.find('\n'), std::string::npos);
    }
  }
  EXPECT_THAT(refusal([&] { solve_paba(good, "jiont"); }), HasSubstr("did you mean joint"));
  EXPECT_THAT(refusal([&] { solve_paba(good, "joint", 1e-3); }),
              HasSubstr("longer than the deadline of 0.001 s"));
  PabaProblem late = good;
  late.groups[0][0].overhead_seconds = 5;
  EXPECT_THAT(refusal([&] { solve_paba(late, "joint", 4); }), HasSubstr("deadline of 4 s"));
  EXPECT_THAT(refusal([&] { solve_paba(good, "joint", -1); }), HasSubstr("a deadline of -1 s"));
  EXPECT_THAT(refusal([&] { margin_seconds(10, 32, 0); }), HasSubstr("margins of 10 samples"));
  EXPECT_DOUBLE_EQ(margin_seconds(1000, 32, 1e6), 0.032);
}

TEST(Paba, GoesOnWithoutTheGroupsThatLostAWorker) {
  const PabaProblem problem = random_problem(4, 2, 2);
  const PabaProblem rest = without(problem, {{1, 0}, {1, 1}, {3, 0}});
  ASSERT_EQ(rest.groups.size(), 2U);
  EXPECT_EQ(rest.groups[1][0].frequency_hz, problem.groups[2][0].frequency_hz);
  EXPECT_GE(seconds(rest, "joint"), seconds(problem, "joint") * (1 - 1e-12));
  EXPECT_THAT(refusal([&] { without(problem, {{4, 0}}); }), HasSubstr("there is none"));
  EXPECT_THAT(refusal([&] { without(problem, {{0, 0}, {1, 0}, {2, 0}, {3, 1}}); }),
              HasSubstr("every group has lost a worker"));
}

}  // namespace
}  // namespace dear::methods::edge::paba_test
