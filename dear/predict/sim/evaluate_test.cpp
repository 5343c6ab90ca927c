#include "dear/predict/sim/evaluate.h"

#include <algorithm>
#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/simulate.h"
#include "dear/schedule/policies/testing/random_job.h"
#include "dear/workload/layers/testing/workloads.h"

namespace dear::sim::evaluate_test {
namespace {

using dear::testing::Random;
using ::testing::ContainsRegex;

constexpr std::array kDetails = {Detail::closed_form, Detail::flows, Detail::blocks};
constexpr double kRelative = 1e-9;

// Seconds: two layers, forward 1 + 1, backward 2 + 2, a bucket each; on two ranks a reduce-scatter or
// all-gather of one takes 1, an all-reduce 2.
using dear::testing::two_layers;

Cluster flat(int ranks, const Link& link) { return flat_cluster({.name = "flat", .link = link}, ranks); }

// Ranks of a node share one card, which is the slower link in every respect.
Cluster nodes(int nodes, int ranks, const Link& inside, const Link& card) {
  return {.name = "nodes",
          .dimensions = {{.name = "node", .size = ranks, .link = inside},
                         {.name = "network", .size = nodes, .link = card}}};
}

Evaluation evaluate_ring(std::string_view policy, const Workload& workload, const Grouping& grouping,
                         const Cluster& cluster, const EvaluateOptions& options = {}) {
  return evaluate(find_policy(policy), workload, grouping, cluster,
                  cost::times_on(cluster, {.algorithm = "ring"}), options);
}

Evaluation pencil(std::string_view policy, Cluster cluster, const EvaluateOptions& options = {}) {
  const Workload workload = two_layers();
  return evaluate_ring(policy, workload, group(workload, PerLayer{}), cluster, options);
}
Cluster pencil_cluster(int ranks = 2) { return flat(ranks, {.beta_seconds_per_byte = 0.25}); }

// f = 2, b = 4, an all-reduce of each layer 2, its halves 1; updates 2 on every rank, 1 of it for each layer.
// serial updates the first layer under the second all-reduce, and waits for the other. The updates of
// dear-replicated count where they run on what the program computes with; sharded among two ranks they take
// half.
TEST(Evaluate, UpdatesTakeTimeOfWhatTheProgramComputesWith) {
  Workload workload = two_layers();
  workload.update_seconds = 2;
  const auto of = [&](std::string_view policy, bool shared) {
    return evaluate_ring(policy, workload, group(workload, PerLayer{}), pencil_cluster(),
                         {.updates_share_compute = shared});
  };
  for (const bool shared : {false, true}) {
    EXPECT_DOUBLE_EQ(of("serial", shared).iteration.seconds, 6 + 4 + 1);
    EXPECT_DOUBLE_EQ(of("serial", shared).compute_seconds, 8);
  }
  EXPECT_DOUBLE_EQ(of("dear-replicated", false).compute_seconds, 6);
  EXPECT_DOUBLE_EQ(of("dear-replicated", true).compute_seconds, 8);
  EXPECT_DOUBLE_EQ(of("dear", true).compute_seconds, 7);
  // Commit at 0, where the reduce-scatter of the second layer is over, that of the first begins: 0 - 1.
  // dear-replicated: gathers 1 - 2, 2 - 3; updates 2 - 3, 3 - 4; forwards 3 - 4 and, beside the second
  // update, 4 - 5; backwards 5 - 7, 7 - 9. Where updates interrupt, the second one does the first forward: 3
  // - 5.
  EXPECT_DOUBLE_EQ(of("dear-replicated", false).iteration.seconds, 9);
  EXPECT_DOUBLE_EQ(of("dear-replicated", true).iteration.seconds, 10);
}

// Two passes more, of 6 each, which nothing waits for: wfbp hides but the first layer's all-reduce.
TEST(Evaluate, AccumulatesGradients) {
  for (const char* const policy : {"serial", "wfbp", "dear", "dear-eager", "bytescheduler", "zero-1"}) {
    SCOPED_TRACE(policy);
    const Evaluation one = pencil(policy, pencil_cluster());
    const Evaluation three = pencil(policy, pencil_cluster(), {.micro_batches = 3});
    EXPECT_DOUBLE_EQ(three.iteration.seconds, one.iteration.seconds + 12);
    EXPECT_DOUBLE_EQ(three.compute_seconds, one.compute_seconds + 12);
    EXPECT_DOUBLE_EQ(three.bound_seconds, one.bound_seconds + 12);
    EXPECT_EQ(three.memory.total(), one.memory.total());
  }
  EXPECT_THROW(pencil("fsdp", pencil_cluster(), {.micro_batches = 2}), ConfigError);
  EXPECT_THROW(pencil("wfbp", pencil_cluster(), {.micro_batches = 0}), ConfigError);
  EXPECT_THROW(pencil("wfbp", pencil_cluster(), {.most_steps = 3}), TooManySteps);
}

// Ten seconds before each of two forwards; of the communication the all-reduce of the first layer is exposed.
TEST(Evaluate, HoldsLayersWherePoliciesDo) {
  Cluster cluster = pencil_cluster();
  cluster.software.hold_seconds = 10;
  EXPECT_DOUBLE_EQ(pencil("bytescheduler", cluster).compute_seconds, 6 + 2 * 10);
  EXPECT_DOUBLE_EQ(pencil("bytescheduler", cluster).iteration.seconds, 6 + 2 * 10 + 2);
  EXPECT_DOUBLE_EQ(pencil("wfbp", cluster).iteration.seconds, 8);
}

TEST(Evaluate, ClosedFormIsTheSimulationOfOneRank) {
  for (std::uint64_t seed = 0; seed < testing::rounds(100U); ++seed) {
    Random random(seed);
    Workload workload = dear::testing::random_workload(random, 8);
    workload.buffer_bytes = static_cast<std::int64_t>(random.below(2) * 100'000);
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const Link link{.alpha_seconds = random.unit() * 1e-4, .beta_seconds_per_byte = random.unit() * 1e-8};
    const int ranks = 1 + static_cast<int>(random.below(9));
    for (const Policy& policy : policies()) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", policy " << policy.name);
      const cost::CollectiveTimes times = cost::ring_times(link, ranks);
      const Result one = simulate(make_schedule(policy, workload, grouping, times), workload, grouping, link,
                                  {.ranks = ranks, .iterations = 16});
      const Evaluation all =
          evaluate(policy, workload, grouping, flat(ranks, link), times, {.updates_share_compute = false});
      EXPECT_DOUBLE_EQ(all.iteration.seconds, one.iteration_seconds);
      EXPECT_DOUBLE_EQ(all.compute_seconds, one.compute_seconds);
      EXPECT_NEAR(all.exposed_communication_seconds, one.exposed_communication_seconds,
                  kRelative * one.iteration_seconds);
      EXPECT_DOUBLE_EQ(all.bound_seconds, one.bound_seconds);
      EXPECT_DOUBLE_EQ(all.r_seconds * policy.traffic, one.r_seconds);
      EXPECT_EQ(all.iteration.half_width_seconds, 0);
      ASSERT_EQ(all.spans.size(), one.spans.size());
      EXPECT_NEAR(all.spans.back().end_seconds, one.spans.back().end_seconds,
                  kRelative * one.spans.back().end_seconds);
    }
  }
}

// A ring puts a message on each link at a time. So nothing is shared, and all three details agree: on a flat
// network; on nodes whose ranks share a card, since one stream alone crosses it; on a switch that carries
// less than its ports, since all messages of a round cross it.
TEST(Evaluate, DetailsAgreeWhereARingSharesNothing) {
  for (std::uint64_t seed = 0; seed < testing::rounds(60U); ++seed) {
    Random random(seed);
    Workload workload = dear::testing::random_workload(random, 5);
    workload.buffer_bytes = static_cast<std::int64_t>(random.below(2) * 100'000);
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const Link card{.alpha_seconds = random.unit() * 1e-4,
                    .beta_seconds_per_byte = 1e-10 + random.unit() * 1e-8};
    const Link inside{.alpha_seconds = card.alpha_seconds * random.unit(),
                      .beta_seconds_per_byte = card.beta_seconds_per_byte * random.unit()};
    const int size = 2 + static_cast<int>(random.below(4));
    Cluster cluster = flat(size, card);
    if (seed % 3 == 1) cluster = nodes(2 + static_cast<int>(random.below(3)), size, inside, card);
    if (seed % 3 == 2) {
      cluster.dimensions[0].oversubscription = 1 + random.unit() * 7;
      workload.buffer_bytes = 0;  // the chain of a broadcast has one message less than the ring
    }
    for (const Policy& policy : policies()) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", policy " << policy.name);
      const double expected = evaluate_ring(policy.name, workload, grouping, cluster).iteration.seconds;
      for (const Detail detail : {Detail::flows, Detail::blocks}) {
        SCOPED_TRACE(name_of(detail));
        EXPECT_NEAR(
            evaluate_ring(policy.name, workload, grouping, cluster, {.detail = detail}).iteration.seconds,
            expected, 1e-6 * expected);
      }
    }
  }
}

// Whether ranks that are alike are simulated one by one or one for all.
TEST(Evaluate, FoldingChangesNothing) {
  for (std::uint64_t seed = 0; seed < testing::rounds(100U); ++seed) {
    Random random(seed);
    const Workload workload = dear::testing::random_workload(random, 6);
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    Cluster cluster = flat(6, {.alpha_seconds = random.unit() * 1e-4, .beta_seconds_per_byte = 1e-9});
    const double slow = 1 + random.unit();
    cluster.stragglers = {{.rank = 1, .slowdown = slow}, {.rank = 4, .slowdown = slow}};
    if (random.below(2) == 0) cluster.stragglers.push_back({.rank = 2, .slowdown = 1 + random.unit()});
    const cost::CollectiveTimes times = cost::times_on(cluster);
    for (const Policy& policy : policies()) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", policy " << policy.name);
      const Schedule schedule = make_schedule(policy, workload, grouping, times);
      const std::vector<double> seconds = step_seconds(schedule, workload, grouping, times);
      const Samples all = iteration_samples(
          schedule, seconds, {.slowdowns = all_slowdowns(cluster.stragglers, 6), .shared = {.updates = true}},
          [&](int ranks) { return std::make_unique<ClosedFormNetwork>(seconds, ranks); }, 16);
      EXPECT_DOUBLE_EQ(evaluate(policy, workload, grouping, cluster, times).iteration.seconds,
                       all.iteration_seconds.front());
    }
  }
}

// serial: 6 of computation, 4 of all-reduces. A rank twice as slow computes for 12, and the others wait. In
// the messages of a ring of two the one that comes later sets the time too.
TEST(Evaluate, TheSlowestRankIsWhoseSecondsCount) {
  Cluster cluster = pencil_cluster();
  cluster.stragglers = {{.rank = 1, .slowdown = 2}};
  for (const Detail detail : kDetails) {
    SCOPED_TRACE(name_of(detail));
    const Evaluation even = pencil("serial", pencil_cluster(), {.detail = detail});
    EXPECT_NEAR(even.iteration.seconds, 10, 1e-9);
    EXPECT_NEAR(even.exposed_communication_seconds, 4, 1e-9);
    const Evaluation uneven = pencil("serial", cluster, {.detail = detail});
    EXPECT_NEAR(uneven.iteration.seconds, 16, 1e-9);
    EXPECT_NEAR(uneven.compute_seconds, 12, 1e-9);
    EXPECT_NEAR(uneven.exposed_communication_seconds, 4, 1e-9);
    EXPECT_NEAR(uneven.f_seconds, 4, 1e-9);
    EXPECT_NEAR(uneven.b_seconds, 8, 1e-9);
    EXPECT_NEAR(uneven.r_seconds, 4, 1e-9);
    EXPECT_NEAR(uneven.bound_seconds, 16, 1e-9);
  }
}

// Forward 2 + backward 4. wfbp: the second bucket (2 s) hides under the backward of the first layer, the
// first one hides under nothing: 8. dear: of four halves of 1 s, RS1 and AG1 hide, RS0 and AG0 do not: 8 too.
TEST(Evaluate, EveryDetailByPencil) {
  for (const Detail detail : kDetails) {
    SCOPED_TRACE(name_of(detail));
    EXPECT_NEAR(pencil("wfbp", pencil_cluster(), {.detail = detail}).iteration.seconds, 8, 1e-9);
    EXPECT_NEAR(pencil("dear", pencil_cluster(), {.detail = detail}).iteration.seconds, 8, 1e-9);
  }
}

TEST(Evaluate, OneRankNeedsNoNetworkInAnyDetail) {
  for (const Policy& policy : policies()) {
    for (const Detail detail : kDetails) {
      SCOPED_TRACE(::testing::Message() << policy.name << ", " << name_of(detail));
      const Evaluation alone = pencil(policy.name, pencil_cluster(1), {.detail = detail});
      EXPECT_NEAR(alone.iteration.seconds, 6, 1e-12);
      EXPECT_EQ(alone.r_seconds, 0);
      EXPECT_EQ(alone.exposed_communication_seconds, 0);
    }
  }
}

// Sums of such times are rounded one way in the iteration and another way in the computation.
TEST(Evaluate, RoundingIsNoExposedCommunication) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const Workload workload = dear::testing::random_workload(random, 20);
    const Grouping grouping = group(workload, PerLayer{});
    for (const Detail detail : kDetails)
      EXPECT_EQ(evaluate_ring("wfbp", workload, grouping, flat(1, {}), {.detail = detail})
                    .exposed_communication_seconds,
                0);
  }
}

TEST(Evaluate, BuffersAreBroadcastInEveryDetail) {
  Workload workload = two_layers();
  workload.buffer_bytes = 4;
  const Grouping grouping = group(workload, PerLayer{});
  for (const Detail detail : kDetails) {
    SCOPED_TRACE(name_of(detail));
    // 4 bytes at 4 bytes a second from one rank to the other, before the forward.
    EXPECT_NEAR(
        evaluate_ring("ddp", workload, grouping, pencil_cluster(), {.detail = detail}).iteration.seconds, 9,
        1e-9);
  }
}

// 57 of 60 intervals of 95 %, each from ten repetitions, should hold the mean; fewer than 52 would be one in
// a hundred thousand.
TEST(Evaluate, IntervalsHoldTheMeanOfManyMore) {
  const EvaluateOptions many{.jitter = 0.2, .repetitions = 3000, .seed = 1'000'000};
  const double mean = pencil("dear", pencil_cluster(), many).iteration.seconds;
  int hold = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Estimate few =
        pencil("dear", pencil_cluster(), {.jitter = 0.2, .repetitions = 10, .seed = seed}).iteration;
    EXPECT_GT(few.half_width_seconds, 0);
    if (std::abs(few.seconds - mean) <= few.half_width_seconds) ++hold;
  }
  EXPECT_GE(hold, 52);
  EXPECT_LT(hold, 60);
  EXPECT_GT(mean, pencil("dear", pencil_cluster()).iteration.seconds);
}

TEST(Evaluate, DetailsHaveNames) {
  for (const Detail detail : kDetails) EXPECT_EQ(parse_detail(name_of(detail)), detail);
  try {
    (void)parse_detail("packets");
    FAIL() << "there is no such detail";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ContainsRegex("'packets'.*closed-form, flows"));
  }
}

// Where messages do not meet, a program played is its closed form.
TEST(EvaluatePrograms, PlayedMessageByMessageTakeTheirClosedForms) {
  Workload workload{.name = "one layer"};
  workload.tensors.push_back({"weight", 1 << 20, DType::f32});
  workload.layers.push_back(
      {.name = "layer", .tensors = {0}, .forward_seconds = 1e-3, .backward_seconds = 2e-3});
  const Grouping grouping = Fusion::parse("all")(workload);
  const Cluster flat = flat_cluster({.name = "flat", .link = {5e-6, 1e-9}}, 8);
  const Cluster nodes{.name = "nodes",
                      .dimensions = {{.name = "node", .size = 4, .link = {2e-6, 1e-10}, .links = 1},
                                     {.name = "spine", .size = 4, .link = {5e-6, 1e-9}, .links = 4}}};
  const Cluster beside{
      .name = "beside",
      .dimensions = {{.name = "mesh", .size = 4, .wiring = Wiring::full_mesh, .link = {2e-6, 1e-10}},
                     {.name = "none", .size = 1, .links = 4},
                     {.name = "ring",
                      .size = 3,
                      .wiring = Wiring::ring,
                      .link = {5e-6, 5e-10},
                      .links = 4,
                      .beside = true},
                     {.name = "rail", .size = 2, .link = {5e-6, 1e-9}, .links = 12, .beside = true}}};
  struct Played {
    const Cluster& cluster;
    std::string program, closed_form;
  };
  for (const auto& [cluster, program, closed_form] :
       {Played{flat, "ring", "ring"}, Played{flat, "halving-doubling", "hierarchical:halving-doubling"},
        Played{flat, "bruck", "hierarchical:bruck"}, Played{flat, "pairwise", "ring"},
        Played{nodes, "hierarchical:ring,halving-doubling", "hierarchical:ring,halving-doubling"},
        Played{beside, "hierarchical:direct,ring,halving-doubling",
               "hierarchical:direct,ring,halving-doubling"}}) {
    for (const std::string policy : {"dear", "serial", "hsdp"}) {
      const auto times = cost::times_on(cluster, {.algorithm = closed_form});
      const auto seconds = [&](Detail detail) {
        return evaluate(find_policy(policy), workload, grouping, cluster, times,
                        {.detail = detail, .program = program})
            .iteration.seconds;
      };
      EXPECT_NEAR(seconds(Detail::blocks) / seconds(Detail::closed_form), 1, 1e-6)
          << program << ", " << policy;
    }
  }
  const auto refusal = [&](Detail detail, const std::string& program) {
    try {
      evaluate(find_policy("dear"), workload, grouping, flat, cost::times_on(flat),
               {.detail = detail, .program = program});
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refusal(Detail::flows, "bruck"), ::testing::HasSubstr("flows go around rings"));
  EXPECT_THAT(refusal(Detail::blocks, "pigeon"), ::testing::HasSubstr("ring"));
  for (const char* const program : {"hierarchical:ring", "hierarchical:ring,ring,ring"})
    EXPECT_THAT(refusal(Detail::blocks, program), ::testing::HasSubstr("inside and one for across"));
}

// Chunks in orders of their own, over two dimensions beside each other: message by message an iteration takes
// what the plan says, on every policy's lanes what closed forms say, between whose sizes they are linear.
TEST(EvaluatePrograms, ChunksGoOverAllDimensionsAtOnce) {
  Workload workload{.name = "two layers"};
  for (const char* const name : {"first", "second"}) {
    workload.tensors.push_back({name, 1 << 20, DType::f32});
    workload.layers.push_back({.name = name,
                               .tensors = {static_cast<std::uint32_t>(workload.layers.size())},
                               .forward_seconds = 1e-3,
                               .backward_seconds = 2e-3});
  }
  const Cluster cluster{
      .name = "rails",
      .dimensions = {{.name = "node", .size = 4, .link = {2e-6, 1e-10}},
                     {.name = "rail", .size = 2, .link = {5e-6, 2e-10}, .links = 4, .beside = true}}};
  const auto seconds = [&](const std::string& policy, Detail detail, const std::string& algorithm,
                           const std::string& fusion) {
    return evaluate(find_policy(policy), workload, Fusion::parse(fusion)(workload), cluster,
                    cost::times_on(cluster, {.algorithm = algorithm}),
                    {.detail = detail, .program = algorithm})
        .iteration.seconds;
  };
  for (const std::string algorithm : {"baseline", "themis"}) {
    const double planned =
        cost::make_chunk_plan(cluster, Collective::all_reduce, 8 << 20, {.algorithm = algorithm}).seconds;
    EXPECT_NEAR(seconds("serial", Detail::blocks, algorithm, "all"), 6e-3 + planned, 1e-9) << algorithm;
    for (const std::string policy : {"serial", "dear", "hsdp"}) {
      EXPECT_NEAR(seconds(policy, Detail::blocks, algorithm, "layer") /
                      seconds(policy, Detail::closed_form, algorithm, "layer"),
                  1, 0.01)
          << algorithm << ", " << policy;
    }
  }
  // 8 ranks send 64 chunks in 3 rounds.
  EXPECT_THROW(evaluate(find_policy("dear"), workload, Fusion::parse("layer")(workload), cluster,
                        cost::times_on(cluster),
                        {.detail = Detail::blocks, .iterations = 1'000'000, .program = "themis"}),
               ConfigError);
  EXPECT_LT(seconds("serial", Detail::blocks, "themis", "all"),
            seconds("serial", Detail::blocks, "baseline", "all"));
}

}  // namespace
}  // namespace dear::sim::evaluate_test
