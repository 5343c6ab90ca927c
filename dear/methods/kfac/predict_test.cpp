#include "dear/methods/kfac/predict.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::kfac::predict_test {
namespace {

using ::testing::ElementsAre;

// Layers whose weights are `dimensions` x `dimensions`; each pass of a layer takes a second, each factor
// half.
Job job_of(const std::vector<std::int64_t>& dimensions) {
  Job job;
  job.workload.name = "job";
  for (const std::int64_t dimension : dimensions) {
    const auto number = static_cast<TensorId>(job.workload.tensors.size());
    job.workload.tensors.push_back({.name = "w" + std::to_string(number), .elements = dimension * dimension});
    job.workload.layers.push_back({.name = "layer " + std::to_string(number),
                                   .tensors = {number},
                                   .forward_seconds = 1,
                                   .backward_seconds = 1});
    job.curvature.push_back(LayerCurvature{.inputs = dimension,
                                           .outputs = dimension,
                                           .input_factor_seconds = 0.5,
                                           .output_factor_seconds = 0.5});
  }
  return job;
}

Costs costs_of(int ranks) {
  return {.ranks = ranks,
          .all_reduce = {.start_seconds = 0.1, .seconds_per_element = 1e-3},
          .reduce = {.start_seconds = 0.05, .seconds_per_element = 5e-4},
          .broadcast = {.start_seconds = 0.05, .seconds_per_element = 5e-4},
          .invert = InverseCost::cubic(0.1, 1e-4)};
}

Prediction predict_with(const Job& job, const std::string& strategy, int ranks,
                        const Intervals& intervals = {}) {
  const Costs costs = costs_of(ranks);
  const Grouping grouping = group(job.workload, PerLayer{});
  return predict(job, grouping, make_plan(job, costs, find_strategy(strategy)), costs, intervals);
}

TEST(Plan, GroupsOwnersAndOrder) {
  const Job job = job_of({10, 40, 20});
  const Plan plan = make_plan(job, costs_of(2), find_strategy("spd-kfac"));
  ASSERT_EQ(plan.factors.size(), 6U);
  std::set<FactorId> sent;
  for (const Plan::Group& group : plan.groups) {
    EXPECT_FALSE(group.owner);
    sent.insert(group.factors.begin(), group.factors.end());
  }
  EXPECT_EQ(sent.size(), 6U);
  // Inverses take 0.2, 6.5 and 0.9 s; to be sent 0.08, 0.46 and 0.16 s: all are worth it.
  EXPECT_THAT(plan.placement, ::testing::Each(::testing::Ne(std::nullopt)));
  std::vector<FactorId> by_group;  // each with the largest first
  for (const Plan::Group& group : plan.groups) {
    std::vector<FactorId> members = group.factors;
    std::stable_sort(members.begin(), members.end(), [&](FactorId a, FactorId b) {
      return plan.factors[a].dimension > plan.factors[b].dimension;
    });
    by_group.insert(by_group.end(), members.begin(), members.end());
  }
  EXPECT_EQ(plan.inversions, by_group);
  EXPECT_NE(plan.placement[1], plan.placement[4]) << "the two largest";
  EXPECT_EQ(plan.digest(), make_plan(job, costs_of(2), find_strategy("spd-kfac")).digest());
  EXPECT_NE(plan.digest(), make_plan(job, costs_of(3), find_strategy("spd-kfac")).digest());
  EXPECT_THROW(find_strategy("kfac"), ConfigError);
}

// Three layers of 22: an inverse takes 1.16 s, and 0.95 s to be sent. That pays one by one; of six, one after
// another, the last comes after 6.9 s.
TEST(Plan, ShipsThePlacementWhoseIterationIsTheFastest) {
  const Job job = job_of({22, 22, 22});
  Costs costs = costs_of(2);
  costs.broadcast = {.start_seconds = 0.95, .seconds_per_element = 0};
  const Grouping grouping = group(job.workload, PerLayer{});
  std::map<PlacementRule, double> seconds;
  for (const PlacementRule rule : {PlacementRule::all_local, PlacementRule::round_robin,
                                   PlacementRule::balanced, PlacementRule::planned}) {
    Strategy strategy = find_strategy("d-kfac");
    strategy.placement = rule;
    seconds[rule] =
        predict(job, grouping, make_plan(job, costs, strategy, grouping), costs).iteration_seconds;
  }
  EXPECT_LT(seconds[PlacementRule::planned], seconds[PlacementRule::balanced]);
  EXPECT_LE(seconds[PlacementRule::planned], seconds[PlacementRule::all_local]);
  EXPECT_LE(seconds[PlacementRule::planned], seconds[PlacementRule::round_robin]);
}

Job random_job(std::mt19937_64& random) {
  std::vector<std::int64_t> dimensions;
  for (std::size_t i = 2 + random() % 6; i > 0; --i)
    dimensions.push_back(8 + static_cast<std::int64_t>(random() % 40));
  Job job = job_of(dimensions);
  std::uniform_real_distribution<double> seconds(0, 2);
  for (std::size_t layer = 0; layer < dimensions.size(); ++layer) {
    job.workload.layers[layer].forward_seconds = seconds(random);
    job.workload.layers[layer].backward_seconds = seconds(random);
    job.curvature[layer]->input_factor_seconds = seconds(random);
    job.curvature[layer]->output_factor_seconds = seconds(random);
    job.curvature[layer]->precondition_seconds = seconds(random);
  }
  return job;
}

Costs random_costs(std::mt19937_64& random) {
  std::uniform_real_distribution<double> factor(0.1, 4);
  Costs costs = costs_of(2 + static_cast<int>(random() % 4));
  for (LinearCost* cost : {&costs.all_reduce, &costs.reduce, &costs.broadcast})
    *cost = {cost->start_seconds * factor(random), cost->seconds_per_element * factor(random)};
  costs.average.seconds_per_element = 1e-4 * factor(random);
  costs.unpack.seconds_per_element = 1e-4 * factor(random);
  costs.interference.computation = random() % 2 == 0 ? 1 : 1.5;
  return costs;
}

Intervals random_intervals(std::mt19937_64& random) {
  const auto factors = static_cast<std::uint32_t>(1 + random() % 12);
  return {.factors = factors, .inverses = factors * static_cast<std::uint32_t>(1 + random() % 12)};
}

// What trains knows layers, not their gradients' buckets. Here gradients decide who inverts.
TEST(Plan, OfLayersAloneIsThatOfTheirGradients) {
  int without_gradients_differ = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const Job job = random_job(random);
    const Costs costs = random_costs(random);
    const Intervals intervals = random_intervals(random);
    const Strategy& strategy = find_strategy("spd-kfac");
    Job layers = job;
    layers.workload.tensors.clear();
    for (Layer& layer : layers.workload.layers) layer.tensors.clear();
    const Plan plan = make_plan(job, costs, strategy, intervals);
    ASSERT_EQ(make_plan(layers, costs, strategy, intervals).digest(), plan.digest()) << seed;
    const Plan alone = make_plan(layers, costs, strategy, Grouping(layers.workload, {}), intervals);
    without_gradients_differ += alone.digest() != plan.digest() ? 1 : 0;
  }
  EXPECT_GT(without_gradients_differ, 0);
}

// Whatever is played, at most 16 iterations are an interval: else this test would not end.
TEST(Plan, CostsNoMoreWhereCurvatureIsRenewedSeldom) {
  EXPECT_EQ(shortened({.factors = 3, .inverses = 12}), (Intervals{.factors = 3, .inverses = 12}));
  EXPECT_EQ(shortened({.factors = 5, .inverses = 500}), (Intervals{.factors = 4, .inverses = 16}));
  const Job job = job_of({22, 40, 30});
  for (const Intervals& intervals :
       {Intervals{.factors = 1, .inverses = 100'000}, Intervals{.factors = 100'000, .inverses = 100'000},
        Intervals{.factors = 1'000'000'000, .inverses = 4'000'000'000}})
    EXPECT_EQ(make_plan(job, costs_of(2), find_strategy("spd-kfac"), intervals).factors.size(), 6U);
}

// Plays every candidate, as long intervals in full have it: so none that lost was faster.
TEST(Plan, KnowsTheIterationsOfLongIntervals) {
  int shorter = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const Job job = random_job(random);
    const Costs costs = random_costs(random);
    const Intervals intervals = random_intervals(random);
    const Grouping grouping = group(job.workload, PerLayer{});
    shorter += shortened(intervals) == intervals ? 0 : 1;
    Strategy strategy = strategies()[random() % strategies().size()];
    std::map<PlacementRule, double> seconds;
    for (const PlacementRule rule : {PlacementRule::all_local, PlacementRule::round_robin,
                                     PlacementRule::balanced, PlacementRule::planned}) {
      strategy.placement = rule;
      const Plan plan = make_plan(job, costs, strategy, grouping, intervals);
      seconds[rule] = predict(job, grouping, plan, costs, intervals).iteration_seconds;
      ASSERT_NEAR(mean_iteration_seconds(job, grouping, plan, costs, intervals) / seconds[rule], 1, 1e-9)
          << seed << " " << strategy.name << " " << intervals.factors << " " << intervals.inverses;
    }
    for (const auto& [rule, other] : seconds)
      ASSERT_LE(seconds[PlacementRule::planned], other * (1 + 1e-8)) << seed;
  }
  EXPECT_GT(shorter, 100);
}

// Where other work hides what they differ by.
TEST(Plan, OfPlacementsThatAreAsFastTakesTheOneWhoseInversesEndFirst) {
  int decided = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const Job job = random_job(random);
    const Costs costs = random_costs(random);
    const Grouping grouping = group(job.workload, PerLayer{});
    Strategy strategy = find_strategy("spd-kfac");
    const auto planned_by = [&](PlacementRule rule) {
      strategy.placement = rule;
      const Plan plan = make_plan(job, costs, strategy, grouping);
      return std::pair(
          mean_iteration_seconds(job, grouping, plan, costs),
          inverse_phase(plan.factors, plan.placement, costs.ranks, placement_costs(costs)).finish_seconds);
    };
    const auto [iteration, phase] = planned_by(PlacementRule::planned);
    for (const PlacementRule rule :
         {PlacementRule::all_local, PlacementRule::round_robin, PlacementRule::balanced}) {
      const auto [other_iteration, other_phase] = planned_by(rule);
      if (std::abs(other_iteration / iteration - 1) > 1e-12) continue;
      decided += other_phase > phase * (1 + 1e-6) ? 1 : 0;
      EXPECT_LE(phase, other_phase * (1 + 1e-6)) << seed;
    }
  }
  EXPECT_GT(decided, 0);
}

TEST(Plan, FactorsThatOneRankInvertsGoToItAlone) {
  const Job job = job_of({10, 40, 20, 30});
  const Plan plan = make_plan(job, costs_of(2), find_strategy("mpd-kfac-owner"));
  ASSERT_EQ(plan.groups.size(), 2U);
  for (const Plan::Group& group : plan.groups)
    for (const FactorId factor : group.factors) EXPECT_EQ(plan.placement[factor], group.owner);
}

TEST(Plan, RefusesAJobThatItCannotServe) {
  Job job = job_of({4});
  job.curvature.clear();
  EXPECT_THROW(make_plan(job, costs_of(2), find_strategy("spd-kfac")), ConfigError);
  job.curvature.resize(1);
  EXPECT_THROW(make_plan(job, costs_of(2), find_strategy("spd-kfac")), ConfigError) << "no factor";
  job = job_of({4});
  EXPECT_THROW(make_plan(job, costs_of(0), find_strategy("spd-kfac")), ConfigError);
  EXPECT_THROW(
      make_iteration(job, group(job.workload, PerLayer{}),
                     make_plan(job, costs_of(2), find_strategy("spd-kfac")), {.factors = 2, .inverses = 3}),
      ConfigError);
}

// Whatever the strategy: every step of the iteration is there, waits for its data, and can run.
TEST(Iteration, HasEveryStepAndRuns) {
  const Job job = job_of({10, 40, 20});
  const Grouping grouping = group(job.workload, PerLayer{});
  for (const Strategy& strategy : strategies())
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(strategy.name);
      const Plan plan = make_plan(job, costs_of(ranks), strategy);
      const Iteration iteration = make_iteration(job, grouping, plan, {.factors = 2, .inverses = 4});
      EXPECT_EQ(flaw_of(iteration.graph, [&](StepId step) { return name_of(iteration.work[step]); }), "");
      std::map<WorkKind, int> count;
      for (const Work& work : iteration.work) ++count[work.kind];
      EXPECT_EQ(count[WorkKind::compute_factor], 6);
      EXPECT_EQ(count[WorkKind::invert], 6);
      EXPECT_EQ(count[WorkKind::precondition], 3);
      EXPECT_EQ(count[WorkKind::update], 1);
      EXPECT_EQ(count[WorkKind::reduce_gradients], 3);
      const auto placed = std::count_if(plan.placement.begin(), plan.placement.end(),
                                        [](const auto& owner) { return owner.has_value(); });
      EXPECT_EQ(count[WorkKind::broadcast], placed);
    }
}

TEST(Predict, DKfacAsAPencilSays) {
  // One layer of 10 x 10: factors 0.5 + 0.5 s, passes 2 s; the gradient (100 elements, 0.2 s) travels under
  // nothing but G; both factors together (110 elements, 0.21 s); two inverses of 0.2 s.
  const Prediction prediction = predict_with(job_of({10}), "d-kfac", 2);
  EXPECT_NEAR(prediction.iteration_seconds, 1.0 + 2.0 + 0.21 + 0.4, 1e-9);
  EXPECT_NEAR(prediction.parts.passes, 2, 1e-9);
  EXPECT_NEAR(prediction.parts.factors, 1, 1e-9);
  EXPECT_NEAR(prediction.parts.gradients, 0, 1e-9);
  EXPECT_NEAR(prediction.parts.factors_sent, 0.21, 1e-9);
  EXPECT_NEAR(prediction.parts.inverses, 0.4, 1e-9);
  EXPECT_NEAR(prediction.parts.total(), prediction.iteration_seconds, 1e-9);
}

TEST(Predict, MpdKfacInvertsHalfAndSendsIt) {
  // The job is that above; each of two ranks inverts one factor (0.2 s), and two broadcasts of 55 elements
  // take 0.0775 s each.
  const Prediction prediction = predict_with(job_of({10}), "mpd-kfac", 2);
  EXPECT_NEAR(prediction.iteration_seconds, 3.0 + 0.21 + 0.2 + 2 * 0.0775, 1e-9);
  EXPECT_NEAR(prediction.parts.inverses_sent, 2 * 0.0775, 1e-9);
}

// The job is that above; averaging 55 elements takes 0.055 s on a rank that keeps a factor, unpacking an
// inverse 0.11 s.
TEST(Predict, RanksAverageWhatTheyKeepAndUnpackWhatTheyReceive) {
  const Job job = job_of({10});
  Costs costs = costs_of(2);
  costs.average.seconds_per_element = 1e-3;
  costs.unpack.seconds_per_element = 2e-3;
  const auto seconds_with = [&](const char* strategy) {
    const Grouping grouping = group(job.workload, PerLayer{});
    return predict(job, grouping, make_plan(job, costs, find_strategy(strategy)), costs).iteration_seconds;
  };
  EXPECT_NEAR(seconds_with("d-kfac"), 1.0 + 2.0 + 0.21 + 2 * (0.055 + 0.2), 1e-9);
  // One rank has its inverse after 0.255 s, the other after 0.31 s, while the first travels.
  EXPECT_NEAR(seconds_with("mpd-kfac"), 3.0 + 0.21 + 0.255 + 2 * 0.0775 + 0.11, 1e-9);
}

// An iteration that sends no inverse unpacks none: its preconditioning takes its own 0.5 s.
TEST(Predict, RanksUnpackInTheIterationsThatSendInverses) {
  Job job = job_of({10});
  job.curvature[0]->precondition_seconds = 0.5;
  Costs costs = costs_of(2);
  costs.unpack.seconds_per_element = 2e-3;
  const Grouping grouping = group(job.workload, PerLayer{});
  const Plan plan = make_plan(job, costs, find_strategy("mpd-kfac"));
  const Iteration iteration = make_iteration(job, grouping, plan, {.factors = 2, .inverses = 4});
  const auto found =
      std::find(iteration.work.begin(), iteration.work.end(), Work{.kind = WorkKind::precondition});
  const auto step = static_cast<StepId>(found - iteration.work.begin());
  for (const int rank : {0, 1}) {
    const auto seconds = step_seconds(job, grouping, plan, costs, iteration, rank);
    for (std::int64_t at = 0; at < 9; ++at)
      EXPECT_NEAR(seconds({step, at}), at % 4 == 0 ? 0.61 : 0.5, 1e-12) << rank << " in iteration " << at;
  }
}

TEST(Predict, BroadcastsThatFollowTheLastInverseAreNotHiddenUnderInverses) {
  // Each of two ranks inverts a factor of 40 (6.5 s) and one of 10 (0.2 s). Broadcasts of the large ones take
  // 0.46 s, and hide the small inverses, or wait for them.
  const Job job = job_of({40, 10});
  const Costs costs = costs_of(2);
  const Grouping grouping = group(job.workload, PerLayer{});
  Strategy strategy = find_strategy("mpd-kfac");
  const double as_inverted = predict(job, grouping, make_plan(job, costs, strategy), costs).iteration_seconds;
  strategy.sending = Sending::after_inverses;
  const double after = predict(job, grouping, make_plan(job, costs, strategy), costs).iteration_seconds;
  EXPECT_NEAR(after - as_inverted, 0.2, 1e-9);
}

TEST(Predict, CyclesFuseWhatBecomesReadyWithinThem) {
  const Job job = job_of({10, 10, 10});
  Strategy strategy = find_strategy("spd-kfac");
  strategy.fusion = FusionRule::alone;
  EXPECT_EQ(make_plan(job, costs_of(2), strategy).groups.size(), 6U);
  strategy.cycle_seconds = 100;
  EXPECT_EQ(make_plan(job, costs_of(2), strategy).groups.size(), 2U) << "directions stay apart";
  strategy.threshold_elements = 110;  // two factors
  EXPECT_EQ(make_plan(job, costs_of(2), strategy).groups.size(), 4U);
}

TEST(Predict, GradientsTravelAsLongAsTheirBytes) {
  Job job = job_of({40});
  job.workload.tensors[0].elements = 10'000;  // 10.1 s in fp32, under 0.5 s of G
  const Costs costs = costs_of(2);
  const auto exposed = [&] {
    const Grouping grouping = group(job.workload, PerLayer{});
    return predict(job, grouping, make_plan(job, costs, find_strategy("d-kfac")), costs).parts.gradients;
  };
  EXPECT_NEAR(exposed(), 10.1 - 0.5, 1e-9);
  job.workload.tensors[0].dtype = DType::f16;
  EXPECT_NEAR(exposed(), 5.1 - 0.5, 1e-9);
}

TEST(Predict, ComputationIsSlowerBesideWhatTravels) {
  Costs costs = costs_of(2);
  const Job job = job_of({10, 10});
  const Grouping grouping = group(job.workload, PerLayer{});
  const Plan plan = make_plan(job, costs, find_strategy("spd-kfac"));
  const double alone = predict(job, grouping, plan, costs).iteration_seconds;
  costs.interference.computation = 2;
  EXPECT_GT(predict(job, grouping, plan, costs).iteration_seconds, alone);
}

// Ranks that own no inverse do alike, so that many of them take no longer to simulate.
TEST(Predict, MoreRanksThanFactorsChangeNothing) {
  const Job job = job_of({10, 40, 20});
  EXPECT_NEAR(predict_with(job, "spd-kfac", 7).iteration_seconds,
              predict_with(job, "spd-kfac", 100'000).iteration_seconds, 1e-9);
}

TEST(Predict, IntervalsRenewCurvatureSeldom) {
  const Prediction always = predict_with(job_of({10}), "d-kfac", 2);
  const Prediction seldom = predict_with(job_of({10}), "d-kfac", 2, {.factors = 1, .inverses = 10});
  EXPECT_NEAR(seldom.parts.inverses, 0.04, 1e-9);
  EXPECT_NEAR(seldom.iteration_seconds, always.iteration_seconds - 0.9 * 0.4, 1e-9);
  const Prediction rare = predict_with(job_of({10}), "d-kfac", 2, {.factors = 10, .inverses = 10});
  EXPECT_NEAR(rare.parts.factors, 0.1, 1e-9);
  EXPECT_NEAR(rare.iteration_seconds, 2 + 0.1 + 0.021 + 0.04 + 0.9 * 0.2, 1e-6)
      << "and the gradient is not hidden";
}

TEST(Predict, PipeliningAndBalanceAreNeverWorseThanWithout) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::int64_t> dimensions;
    for (std::size_t i = 2 + random() % 6; i > 0; --i)
      dimensions.push_back(8 + static_cast<std::int64_t>(random() % 40));
    const Job job = job_of(dimensions);
    const int ranks = 2 + static_cast<int>(random() % 3);
    const double d = predict_with(job, "d-kfac", ranks).iteration_seconds;
    const double spd = predict_with(job, "spd-kfac", ranks).iteration_seconds;
    EXPECT_LE(spd, 1.02 * d);
  }
}

}  // namespace
}  // namespace dear::methods::kfac::predict_test
