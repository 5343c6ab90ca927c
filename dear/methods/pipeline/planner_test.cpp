#include "dear/methods/pipeline/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/models_in_test.h"
#include "dear/methods/pipeline/partition.h"
#include "dear/methods/pipeline/zoo_operators.h"
#include "dear/platform/cluster/sites.h"

namespace dear::methods::pipeline::planner_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr LinkCompression kAda{.rule = CompressionRule::ada_top_k, .ratio = 100};
constexpr LinkCompression kUniform{.rule = CompressionRule::top_k, .ratio = 100};

Plan plan_of(const StageCosts& costs, PlanMethod method, const LinkCompression& compression) {
  return make_plan(costs, {.method = method, .compression = compression});
}

double seconds_of(const StageCosts& costs, PlanMethod method, const LinkCompression& compression) {
  return play(times_of(plan_of(costs, method, compression), costs)).iteration_seconds;
}

// Counts what all messages carry, in both directions.
double elements_sent(const Plan& plan, const OperatorDag& dag) {
  std::map<std::pair<int, OperatorId>, Message> compressed;
  for (const Message& message : plan.messages) compressed[{message.from_stage, message.output}] = message;
  double elements = 0;
  for (std::size_t s = 0; s + 1 < plan.stages.size(); ++s)
    for (const OperatorId output : dag.crossing(static_cast<std::size_t>(plan.stages[s].operators.end))) {
      const Message message = compressed[{static_cast<int>(s), output}];
      elements += static_cast<double>(sent_elements(dag[output], message.activation_ratio) +
                                      sent_elements(dag[output], message.gradient_ratio));
    }
  return elements;
}

// 48 layers alike on 24 devices in three sites at 30, 15 and 8 TFLOP/s.
struct Sites {
  Sites(double least, double most, std::uint64_t seed)
      : cluster(random_sites(
            {.devices = 24, .sites = 3, .between_bits_per_second = {least, most}, .seed = seed})) {}
  OperatorDag layers{"48 layers", chain_of(48, 8e11, 9'400'000)};
  PairCluster cluster;
  StageCosts costs{layers, cluster};
  [[nodiscard]] double gain(PlanMethod method, const LinkCompression& compression) const {
    return seconds_of(costs, PlanMethod::equal_number, {}) / seconds_of(costs, method, compression);
  }
};

// The published range is 1.45 to 9.39; 16.9, 2.5 and 1.7 is what a model of these three clusters gave.
TEST(OpFence, WithAdaTopKBeatsEqualNumbersAsMuchAsLinksDiffer) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Sites slow(8e6, 100e6, seed), middling(1e8, 1e9, seed), mild(1e9, 2e9, seed);
    EXPECT_GT(slow.gain(PlanMethod::op_fence, kAda), 13);
    EXPECT_LT(slow.gain(PlanMethod::op_fence, kAda), 22);
    EXPECT_GT(middling.gain(PlanMethod::op_fence, kAda), 2);
    EXPECT_LT(middling.gain(PlanMethod::op_fence, kAda), 3.5);
    EXPECT_GT(mild.gain(PlanMethod::op_fence, kAda), 1.45);
    EXPECT_LT(mild.gain(PlanMethod::op_fence, kAda), 2.5);
    // Neither half of it alone is as fast.
    for (const Sites* sites : {&slow, &middling, &mild}) {
      EXPECT_GT(sites->gain(PlanMethod::op_fence, {}), 1.4);
      EXPECT_GT(sites->gain(PlanMethod::op_fence, kAda), sites->gain(PlanMethod::op_fence, {}));
      EXPECT_GT(sites->gain(PlanMethod::op_fence, kAda), sites->gain(PlanMethod::equal_number, kUniform));
    }
  }
}

// Nearly as fast as one ratio for all links, with far fewer elements dropped.
TEST(OpFence, WithAdaTopKSendsMoreThanUniformTopKInTheSameTime) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Sites slow(8e6, 100e6, seed);
    EXPECT_GE(slow.gain(PlanMethod::op_fence, kAda), 0.9 * slow.gain(PlanMethod::op_fence, kUniform));
    EXPECT_GE(elements_sent(plan_of(slow.costs, PlanMethod::op_fence, kAda), slow.layers),
              2 * elements_sent(plan_of(slow.costs, PlanMethod::op_fence, kUniform), slow.layers));
  }
}

TEST(OpFence, BeatsEqualNumbersOnThePresets) {
  for (const PairClusterPreset& preset : pair_clusters()) {
    const OperatorDag resnet = operators_of(zoo::find_model("resnet101"), {.batch = 64, .micro_batches = 8});
    const OperatorDag gpt = operators_of(zoo::find_model("gpt2-medium"), {.batch = 64, .micro_batches = 8});
    const StageCosts resnet_costs(resnet, preset.cluster), gpt_costs(gpt, preset.cluster);
    const auto gain = [](const StageCosts& costs) {
      return seconds_of(costs, PlanMethod::equal_number, {}) / seconds_of(costs, PlanMethod::op_fence, kAda);
    };
    EXPECT_GE(gain(resnet_costs), 5) << preset.cluster.name;
    EXPECT_GE(gain(gpt_costs), 5) << preset.cluster.name;
  }
}

// Links between sites that are as fast as 1/4 of those inside, and at most as 1/50.
TEST(OpFence, GainsByHowMuchSlowerLinksAreBetweenSites) {
  const OperatorDag layers("48 layers", chain_of(48, 8e11, 9'400'000));
  const auto gain = [&](const Drawn& between) {
    const PairCluster cluster = random_sites({.devices = 24,
                                              .sites = 3,
                                              .inside_bits_per_second = {4e9, 4e9},
                                              .between_bits_per_second = between});
    const StageCosts costs(layers, cluster);
    return seconds_of(costs, PlanMethod::equal_number, {}) / seconds_of(costs, PlanMethod::op_fence, kAda);
  };
  EXPECT_GE(gain({1e9, 1e9}), 1.45);
  EXPECT_GE(gain({20e6, 80e6}), 5);
}

// Every method, schedule and compression gives a plan that can be, and that its file keeps.
TEST(Planner, MakesPlansThatCanBe) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<Operator> operators = random_dag(random, 16).operators();
    operators.front().parameter_bytes = 800;
    if (trial % 3 == 0) operators.back().tied = 0;
    const OperatorDag dag("random", operators);
    const PairCluster cluster = random_cluster(random, 1 + static_cast<std::size_t>(trial) % 4, 1 << 20);
    const StageCosts costs(dag, cluster);
    const auto schedule = schedule_kinds()[static_cast<std::size_t>(trial) % 4].kind;
    const int rounds = schedule == ScheduleKind::interleaved ? 2 : 1;
    for (const PlanMethod method :
         {PlanMethod::op_fence, PlanMethod::plain_dp, PlanMethod::equal_number, PlanMethod::equal_work}) {
      for (const CompressionRule rule :
           {CompressionRule::none, CompressionRule::top_k, CompressionRule::ada_top_k}) {
        const Plan plan = make_plan(costs, {.method = method,
                                            .schedule = schedule,
                                            .micro_batches = 2 * static_cast<int>(cluster.devices.size()),
                                            .stages_of_device = rounds,
                                            .compression = {.rule = rule, .ratio = 3}});
        EXPECT_NO_THROW(check(plan, costs));
        EXPECT_THAT(plan.stages, SizeIs(cluster.devices.size() * static_cast<std::size_t>(rounds)));
        EXPECT_GT(play(times_of(plan, costs)).iteration_seconds, 0);
      }
    }
  }
}

// The least of the longest time of a stage or link, with devices in the order of the list.
TEST(PlainDp, IsTheBestCutOfDevicesAsListed) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Sites sites(8e6, 100e6, seed);
    const Plan plan = plan_of(sites.costs, PlanMethod::plain_dp, {});
    std::vector<Place> places;
    for (int device = 0; device < 24; ++device) {
      EXPECT_EQ(plan.stages[static_cast<std::size_t>(device)].device, device);
      places.push_back({.device = device, .memory_bytes = std::int64_t{1} << 40});
    }
    const auto longest = [&](const auto& range_of) {
      double seconds = 0;
      for (int device = 0; device < 24; ++device)
        seconds = std::max(seconds, stage_seconds(sites.costs, range_of(static_cast<std::size_t>(device)),
                                                  device, device - 1));
      return seconds;
    };
    const std::vector<Range> best = best_partition(sites.costs, {0, 48}, places);
    EXPECT_EQ(longest([&](std::size_t s) { return plan.stages[s].operators; }),
              longest([&](std::size_t s) { return best[s]; }));
  }
}

TEST(Planner, TakesOneDeviceAndOneCommunity) {
  const OperatorDag dag("m", chain_of(6, 1, 40));
  const PairCluster one = alike_cluster(1, 1, 10);
  const Plan alone = make_plan(StageCosts(dag, one), {.compression = kAda});
  EXPECT_THAT(alone.stages, SizeIs(1));
  EXPECT_TRUE(alone.messages.empty());
  EXPECT_THAT(alone.warm_up, ElementsAre(1));
  const PairCluster alike = alike_cluster(3, 1, 10);
  const Plan together = make_plan(StageCosts(dag, alike));
  EXPECT_THAT(together.stages, ElementsAre(Stage{0, {0, 2}}, Stage{1, {2, 4}}, Stage{2, {4, 6}}));
}

// The memory that is left decides how deep a warm-up may be.
TEST(Planner, DeepensTheWarmUpAsFarAsMemoryGoes) {
  const OperatorDag dag("m", chain_of(4, 1, 40));
  PairCluster cluster = alike_cluster(2, 1, 1e9, 11.9);  // a round trip of 35.8 s, a period of 6 s
  EXPECT_THAT(make_plan(StageCosts(dag, cluster)).warm_up, ElementsAre(6, 1));
  const StageCosts costs(dag, cluster);
  for (PairDevice& device : cluster.devices)  // a micro-batch of the first stage holds 80 bytes
    device.memory_bytes = costs.resident_bytes({0, 2}) + 4 * 80 + 40;
  EXPECT_THAT(make_plan(costs).warm_up, ElementsAre(4, 1));
  // Under zb-h1 the second stage holds as many as the first, and 120 bytes of each.
  EXPECT_THAT(make_plan(costs, {.schedule = ScheduleKind::zb_h1}).warm_up, ElementsAre(3, 1));
  EXPECT_TRUE(make_plan(StageCosts(dag, alike_cluster(2, 1, 1e9)), {.schedule = ScheduleKind::gpipe})
                  .warm_up.empty());
}

// Dense activations take longer between sites than one site takes for all.
TEST(Planner, LeavesDevicesOutWherePlansAreFasterWithoutThem) {
  const OperatorDag dag = operators_of(zoo::find_model("resnet101"), {.batch = 64, .micro_batches = 8});
  const PairCluster cluster = find_pair_cluster("two-sites");
  const StageCosts costs(dag, cluster);
  const Plan all = make_plan(costs), fewer = make_plan(costs, {.devices = DeviceUse::fastest});
  EXPECT_THAT(all.stages, SizeIs(8));
  EXPECT_THAT(fewer.stages, SizeIs(4));
  EXPECT_LT(5 * play(times_of(fewer, costs)).iteration_seconds, play(times_of(all, costs)).iteration_seconds);
  // Where they pay, all are used.
  const OperatorDag heavy("heavy", chain_of(16, 1e14, 4000));
  EXPECT_THAT(make_plan(StageCosts(heavy, cluster), {.devices = DeviceUse::fastest}).stages, SizeIs(8));
  const OperatorDag few("few", chain_of(3, 1, 4000));
  EXPECT_THAT([&] { (void)make_plan(StageCosts(few, cluster), {.devices = DeviceUse::fastest}); },
              ThrowsMessage<ConfigError>(HasSubstr("3 operators are too few for 8 stages")));
}

// Two sites of two devices, with 1e9 bytes a second inside and 100 between. As devices are listed a gradient
// of 10,000 bytes takes 100 s from end to end; with both ends at one site the slow link is passed twice each
// way, by 4 bytes.
TEST(TiedParameters, LieOnDevicesThatAreNearEachOther) {
  std::vector<Operator> operators = chain_of(4, 1, 4);
  operators[0].parameter_bytes = 10000;
  operators[3].tied = 0;
  const OperatorDag dag("tied", operators);
  PairCluster cluster = alike_cluster(4, 1, 1e9);
  for (const int a : {0, 1})
    for (const int b : {2, 3})
      cluster.bytes_per_second[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] =
          cluster.bytes_per_second[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = 100;
  const StageCosts costs(dag, cluster);
  const PlanOptions options{.schedule = ScheduleKind::gpipe, .micro_batches = 1};
  const Plan plan = make_plan(costs, options);
  EXPECT_EQ(plan.stages.front().device / 2, plan.stages.back().device / 2);
  EXPECT_NEAR(play(times_of(plan, costs)).iteration_seconds, 12 + 4 * 0.04, 1e-4);
  operators[3].tied.reset();
  const OperatorDag untied("tied", operators);
  EXPECT_NEAR(play(times_of(make_plan(StageCosts(untied, cluster), options), costs)).iteration_seconds,
              12 + 2 * 0.04 + 100, 1e-4);
}

OperatorDag drawn_with_tie(std::mt19937& random, std::size_t count, bool tied) {
  std::vector<Operator> operators = random_dag(random, count).operators();
  operators.front().parameter_bytes = 4000;
  if (tied) operators.back().tied = 0;
  return {"drawn", std::move(operators)};
}

// No plan is slower than the one that looks at no tie.
TEST(TiedParameters, MakeNoPlanSlowerThanWithoutALookAtThem) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed), same(seed);
    const OperatorDag tied = drawn_with_tie(random, 14, true), untied = drawn_with_tie(same, 14, false);
    PairCluster cluster = random_sites({.devices = 6, .sites = 3, .seed = seed});
    for (PairDevice& device : cluster.devices) device.flops_per_second = 1 + device.flops_per_second / 1e13;
    for (std::vector<double>& row : cluster.bytes_per_second)
      for (double& each : row) each /= 1e5;
    const StageCosts costs(tied, cluster), blind(untied, cluster);
    const PlanOptions options{.schedule = schedule_kinds()[seed % 2].kind,
                              .micro_batches = 4,
                              .compression = seed % 3 == 0 ? LinkCompression{} : kAda,
                              .devices = seed % 5 == 0 ? DeviceUse::fastest : DeviceUse::all};
    EXPECT_LE(play(times_of(make_plan(costs, options), costs)).iteration_seconds,
              play(times_of(make_plan(blind, options), costs)).iteration_seconds)
        << seed;
  }
}

// Beside every cut for every order of four devices.
TEST(TiedParameters, HaveAPlanThatIsNearTheBestOfAll) {
  double worst = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const OperatorDag dag = drawn_with_tie(random, 8, true);
    PairCluster cluster = alike_cluster(4, 1, 1000);
    for (std::size_t a = 0; a < 2; ++a)
      for (std::size_t b = 2; b < 4; ++b)
        cluster.bytes_per_second[a][b] = cluster.bytes_per_second[b][a] =
            std::uniform_real_distribution<double>(10, 100)(random);
    const StageCosts costs(dag, cluster);
    const PlanOptions options{.schedule = ScheduleKind::gpipe, .micro_batches = 2};
    Plan any{.model = "drawn", .schedule = ScheduleKind::gpipe, .micro_batches = 2, .stages = {}};
    double best = HUGE_VAL;
    std::vector<int> order{0, 1, 2, 3};
    do {
      for (std::int64_t a = 1; a < 6; ++a)
        for (std::int64_t b = a + 1; b < 7; ++b)
          for (std::int64_t c = b + 1; c < 8; ++c) {
            any.stages = {{order[0], {0, a}}, {order[1], {a, b}}, {order[2], {b, c}}, {order[3], {c, 8}}};
            best = std::min(best, play(times_of(any, costs)).iteration_seconds);
          }
    } while (std::next_permutation(order.begin(), order.end()));
    const double found = play(times_of(make_plan(costs, options), costs)).iteration_seconds;
    EXPECT_GE(found, best);
    worst = std::max(worst, found / best);
  }
  EXPECT_LT(worst, 1.05);
}

// The devices of the paper: by far the most of an iteration was the tie, over a link between two sites.
TEST(TiedParameters, CostLittleOnTheDevicesOfThePaper) {
  const OperatorDag tied = operators_of(zoo::find_model("gpt2"), {.batch = 8, .micro_batches = 8});
  std::vector<Operator> operators = tied.operators();
  operators.back().tied.reset();
  const OperatorDag untied(tied.name(), operators);
  const PairCluster cluster = find_pair_cluster("fusionllm-48");
  const StageCosts costs(tied, cluster), without(untied, cluster);
  EXPECT_LT(seconds_of(costs, PlanMethod::op_fence, kAda),
            1.25 * seconds_of(without, PlanMethod::op_fence, kAda));
  EXPECT_GT(play(times_of(plan_of(without, PlanMethod::op_fence, kAda), costs)).iteration_seconds,
            5 * seconds_of(costs, PlanMethod::op_fence, kAda));
}

TEST(Planner, RefusesWithOneSentence) {
  const auto refused = [](const OperatorDag& dag, const PairCluster& cluster, const PlanOptions& options,
                          const std::string& message) {
    const StageCosts costs(dag, cluster);
    EXPECT_THAT([&] { (void)make_plan(costs, options); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const OperatorDag dag("m", chain_of(4, 1, 40));
  PairCluster cluster = alike_cluster(2, 1, 10);
  refused(dag, cluster, {.micro_batches = 0}, "cannot run 0 micro-batches");
  refused(dag, cluster, {.stages_of_device = 0}, "has no stage");
  refused(dag, cluster, {.stages_of_device = 2}, "1f1b has one stage on each device");
  refused(dag, cluster, {.schedule = ScheduleKind::interleaved, .micro_batches = 3, .stages_of_device = 2},
          "cannot run 3 micro-batches on 2 devices");
  refused(dag, cluster, {.compression = {.rule = CompressionRule::top_k, .ratio = 0.5}}, "is 0.5");
  refused(dag, cluster, {.tolerance = kNan}, "fences cannot move by nan");
  for (const PlanMethod method :
       {PlanMethod::op_fence, PlanMethod::plain_dp, PlanMethod::equal_number, PlanMethod::equal_work})
    refused(dag, alike_cluster(5, 1, 10), {.method = method}, "4 operators are too few for 5 stages");
  cluster.bytes_per_second[0][1] = kNan;
  refused(dag, cluster, {}, "the link from 'd0' to 'd1' carries nan bytes a second");
  cluster = alike_cluster(2, 1, 10);
  for (PairDevice& device : cluster.devices) device.memory_bytes = 60;
  refused(dag, cluster, {}, "operator 'op1' alone needs more memory than any stage has");
  refused(dag, cluster, {.method = PlanMethod::equal_number}, "device 'd0' needs");
  EXPECT_EQ(find_plan_method("equal-work"), PlanMethod::equal_work);
  EXPECT_THAT([] { (void)find_plan_method("op-fense"); },
              ThrowsMessage<ConfigError>(HasSubstr("did you mean op-fence?")));
}

}  // namespace
}  // namespace dear::methods::pipeline::planner_test
