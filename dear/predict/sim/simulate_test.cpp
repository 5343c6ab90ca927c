#include "dear/predict/sim/simulate.h"

#include <map>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/ring.h"
#include "dear/schedule/conductor/testing/order_check.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::sim::simulate_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// [Note: golden job] Three layers, each in a bucket of its own, on two ranks. Seconds:
//
//   layer / bucket          0  1  2   sum
//   F forward               1  2  1     4
//   B backward              2  4  2     8
//   RS or AG                1  2  3     6    bytes 8, 16, 24; a ring of two sends half of them at 4 bytes a
//   second AR all-reduce           2  4  6    12 U update of the whole   2  4  6    12    by bytes U update
//   of the shard   1  2  3     6    half of it
Workload golden_workload() {
  return {
      .name = "golden",
      .tensors = {{.name = "a", .elements = 2}, {.name = "b", .elements = 4}, {.name = "c", .elements = 6}},
      .layers = {{.name = "first", .tensors = {0}, .forward_seconds = 1, .backward_seconds = 2},
                 {.name = "second", .tensors = {1}, .forward_seconds = 2, .backward_seconds = 4},
                 {.name = "third", .tensors = {2}, .forward_seconds = 1, .backward_seconds = 2}},
      .update_seconds = 12};
}
constexpr Link kGoldenLink{.alpha_seconds = 0, .beta_seconds_per_byte = 0.25};

std::string short_name(const Work& work) {
  if (const auto* forward = std::get_if<Forward>(&work)) return fmt::format("F{}", forward->layer);
  if (const auto* backward = std::get_if<Backward>(&work)) return fmt::format("B{}", backward->layer);
  if (const auto* update = std::get_if<Update>(&work)) return fmt::format("U{}", update->bucket);
  if (const auto* communicate = std::get_if<Communicate>(&work)) {
    const std::map<Collective, const char*> names = {
        {Collective::reduce_scatter, "RS"}, {Collective::all_gather, "AG"}, {Collective::all_reduce, "AR"}};
    return fmt::format("{}{}{}", names.at(communicate->collective), communicate->bucket,
                       communicate->payload == Payload::parameters_again ? " again" : "");
  }
  return "C";
}

using Timeline = std::map<std::string, std::pair<double, double>>;

// Begin and end of every span of one iteration.
Timeline timeline(const Schedule& schedule, const Result& result, std::int64_t iteration) {
  Timeline timeline;
  for (const conductor::StepSpan& span : result.spans)
    if (span.which.iteration == iteration)
      timeline[short_name(schedule.steps()[span.which.step].work)] = {span.begin_seconds, span.end_seconds};
  return timeline;
}

Timeline shifted(Timeline timeline, double seconds) {
  for (auto& [name, span] : timeline) {
    span.first += seconds;
    span.second += seconds;
  }
  return timeline;
}

void expect_timeline(const Timeline& actual, const Timeline& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, span] : expected) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(actual.contains(name));
    EXPECT_NEAR(actual.at(name).first, span.first, 1e-12);
    EXPECT_NEAR(actual.at(name).second, span.second, 1e-12);
  }
}

struct Golden {
  Workload workload = golden_workload();
  Grouping grouping = group(workload, PerLayer{});
  Schedule schedule;
  Result result;
  explicit Golden(std::string_view policy)
      : schedule(make_schedule(find_policy(policy), workload, grouping)),
        result(simulate(schedule, workload, grouping, kGoldenLink, {.ranks = 2, .iterations = 8})) {}
  Timeline iteration(std::int64_t i) const { return timeline(schedule, result, i); }
};

// Without anything to wait for, every policy's first iteration computes F0 0-1, F1 1-3, F2 3-4, B2 4-6, B1
// 6-10, B0 10-12, C at 12.
Timeline first_compute() {
  return {{"F0", {0, 1}},  {"F1", {1, 3}},   {"F2", {3, 4}}, {"B2", {4, 6}},
          {"B1", {6, 10}}, {"B0", {10, 12}}, {"C", {12, 12}}};
}
Timeline with(Timeline timeline, const Timeline& more) {
  timeline.insert(more.begin(), more.end());
  return timeline;
}

// All-reduces after the commit, one after the other: 12 + 6 = 18, + 4 = 22, + 2 = 24. Updates follow theirs
// on the compute lane: U2 from 18, then U1 (reduced at 22) from 24, then U0 from 28 to 30, when the next
// forward begins.
TEST(Golden, Serial) {
  const Golden golden("serial");
  const Timeline first = with(first_compute(), {{"AR2", {12, 18}},
                                                {"AR1", {18, 22}},
                                                {"AR0", {22, 24}},
                                                {"U2", {18, 24}},
                                                {"U1", {24, 28}},
                                                {"U0", {28, 30}}});
  for (const std::int64_t i : {0, 1, 2, 7})
    expect_timeline(golden.iteration(i), shifted(first, 30.0 * static_cast<double>(i)));
  EXPECT_NEAR(golden.result.iteration_seconds, 30, 1e-9);
  EXPECT_NEAR(golden.result.compute_seconds, 24, 1e-9);
  EXPECT_NEAR(golden.result.exposed_communication_seconds, 6, 1e-9);
  EXPECT_NEAR(golden.result.bound_seconds, 4 + 8 + 12, 1e-9);
}

// AR2 starts with the end of B2 at 6 and ends at 12, AR1 (ready at 10) 12 to 16, AR0 (ready at 12) 16 to 18.
// Updates on the compute lane after the commit at 12: U2 12 to 18, U1 to 22, U0 to 24, when the next forward
// begins.
TEST(Golden, Wfbp) {
  const Golden golden("wfbp");
  const Timeline first = with(first_compute(), {{"AR2", {6, 12}},
                                                {"AR1", {12, 16}},
                                                {"AR0", {16, 18}},
                                                {"U2", {12, 18}},
                                                {"U1", {18, 22}},
                                                {"U0", {22, 24}}});
  for (const std::int64_t i : {0, 1, 2, 7})
    expect_timeline(golden.iteration(i), shifted(first, 24.0 * static_cast<double>(i)));
  EXPECT_NEAR(golden.result.iteration_seconds, 24, 1e-9);
  EXPECT_NEAR(golden.result.compute_seconds, 24, 1e-9);
  EXPECT_NEAR(golden.result.exposed_communication_seconds, 0, 1e-9);
  EXPECT_NEAR(golden.result.bound_seconds, 4 + 12, 1e-9);
}

// RS2 6 to 9, RS1 (ready at 10) to 12, RS0 (ready at 12) to 13. Then all-gathers without a gap: AG0 to 14,
// AG1 to 16, AG2 to 19. Whole updates on their lane: U0 14 to 16, U1 16 to 20, U2 20 to 26. The next forwards
// wait for them: F0 from 16, F1 from 20, F2 from 26 to 27; from there backward as before, B2 27 to 29, B1 to
// 33, B0 to 35. RS2 29 to 32, RS1 33 to 35, RS0 to 36, AG0 to 37, AG1 to 39, AG2 to 42; U0 37 to 39, U1 to
// 43, U2 to 49. Everything but the first forwards is 23 later, so every further iteration is, too.
TEST(Golden, DearReplicated) {
  const Golden golden("dear-replicated");
  expect_timeline(golden.iteration(0), with(first_compute(), {{"RS2", {6, 9}},
                                                              {"RS1", {10, 12}},
                                                              {"RS0", {12, 13}},
                                                              {"AG0", {13, 14}},
                                                              {"AG1", {14, 16}},
                                                              {"AG2", {16, 19}},
                                                              {"U0", {14, 16}},
                                                              {"U1", {16, 20}},
                                                              {"U2", {20, 26}}}));
  const Timeline second = {{"F0", {16, 17}},  {"F1", {20, 22}},  {"F2", {26, 27}},  {"B2", {27, 29}},
                           {"B1", {29, 33}},  {"B0", {33, 35}},  {"C", {35, 35}},   {"RS2", {29, 32}},
                           {"RS1", {33, 35}}, {"RS0", {35, 36}}, {"AG0", {36, 37}}, {"AG1", {37, 39}},
                           {"AG2", {39, 42}}, {"U0", {37, 39}},  {"U1", {39, 43}},  {"U2", {43, 49}}};
  for (const std::int64_t i : {1, 2, 7})
    expect_timeline(golden.iteration(i), shifted(second, 23.0 * static_cast<double>(i - 1)));
  EXPECT_NEAR(golden.result.iteration_seconds, 23, 1e-9);
  EXPECT_NEAR(golden.result.compute_seconds, 12, 1e-9);
  EXPECT_NEAR(golden.result.exposed_communication_seconds, 11, 1e-9);
  EXPECT_NEAR(golden.result.bound_seconds, 6 + 8, 1e-9);
}

// RS2 6 to 9, RS1 10 to 12, RS0 12 to 13. Updates of shards: U0 13 to 14, U1 to 16, U2 to 19. Each all-gather
// follows its update: AG0 14 to 15, AG1 16 to 18, AG2 19 to 22. The next forwards: F0 from 15, F1 from 18, F2
// from 22 to 23; B2 to 25, B1 to 29, B0 to 31. RS2 25 to 28, RS1 29 to 31, RS0 to 32; U0 to 33, U1 to 35, U2
// to 38; AG0 33 to 34, AG1 35 to 37, AG2 38 to 41: 19 later, and so on.
TEST(Golden, Dear) {
  const Golden golden("dear");
  expect_timeline(golden.iteration(0), with(first_compute(), {{"RS2", {6, 9}},
                                                              {"RS1", {10, 12}},
                                                              {"RS0", {12, 13}},
                                                              {"U0", {13, 14}},
                                                              {"U1", {14, 16}},
                                                              {"U2", {16, 19}},
                                                              {"AG0", {14, 15}},
                                                              {"AG1", {16, 18}},
                                                              {"AG2", {19, 22}}}));
  const Timeline second = {{"F0", {15, 16}},  {"F1", {18, 20}},  {"F2", {22, 23}},  {"B2", {23, 25}},
                           {"B1", {25, 29}},  {"B0", {29, 31}},  {"C", {31, 31}},   {"RS2", {25, 28}},
                           {"RS1", {29, 31}}, {"RS0", {31, 32}}, {"U0", {32, 33}},  {"U1", {33, 35}},
                           {"U2", {35, 38}},  {"AG0", {33, 34}}, {"AG1", {35, 37}}, {"AG2", {38, 41}}};
  for (const std::int64_t i : {1, 2, 7})
    expect_timeline(golden.iteration(i), shifted(second, 19.0 * static_cast<double>(i - 1)));
  EXPECT_NEAR(golden.result.iteration_seconds, 19, 1e-9);
  EXPECT_NEAR(golden.result.compute_seconds, 12, 1e-9);
  EXPECT_NEAR(golden.result.exposed_communication_seconds, 7, 1e-9);
  EXPECT_NEAR(golden.result.f_seconds, 4, 1e-12);
  EXPECT_NEAR(golden.result.b_seconds, 8, 1e-12);
  EXPECT_NEAR(golden.result.r_seconds, 12, 1e-12);
  EXPECT_NEAR(golden.result.bound_seconds, 6 + 8, 1e-9);
}

// RS2 6 to 9, RS1 10 to 12, RS0 to 13. Updates of shards on the compute lane: U2 12 to 15, U1 to 17, U0
// to 18. All-gathers follow: AG0 18 to 19, AG1 to 21, AG2 to 24, when the next forward begins.
TEST(Golden, Zero1) {
  const Golden golden("zero-1");
  const Timeline first = with(first_compute(), {{"RS2", {6, 9}},
                                                {"RS1", {10, 12}},
                                                {"RS0", {12, 13}},
                                                {"U2", {12, 15}},
                                                {"U1", {15, 17}},
                                                {"U0", {17, 18}},
                                                {"AG0", {18, 19}},
                                                {"AG1", {19, 21}},
                                                {"AG2", {21, 24}}});
  for (const std::int64_t i : {0, 1, 7})
    expect_timeline(golden.iteration(i), shifted(first, 24.0 * static_cast<double>(i)));
  EXPECT_NEAR(golden.result.bound_seconds, 4 + 8 + 6, 1e-9);
}

// AG0 0 to 1, AG1 1 to 3, and AG2, which waits for F0 alone, 3 to 6: F0 1 to 2, F1 3 to 5, F2 6 to 7. Again
// AG2 7 to 10, AG1 to 12, and AG0, which waits for B2 (10 to 12), to 13; B1 12 to 16. RS2 13 to 16; B0 16
// to 18. RS1 16 to 18, RS0 to 19. U2 18 to 21, U1 to 23, U0 to 24.
TEST(Golden, Fsdp) {
  const Golden golden("fsdp");
  const Timeline first = {
      {"AG0", {0, 1}},         {"AG1", {1, 3}},   {"AG2", {3, 6}},        {"F0", {1, 2}},
      {"F1", {3, 5}},          {"F2", {6, 7}},    {"AG2 again", {7, 10}}, {"AG1 again", {10, 12}},
      {"AG0 again", {12, 13}}, {"B2", {10, 12}},  {"B1", {12, 16}},       {"B0", {16, 18}},
      {"C", {18, 18}},         {"RS2", {13, 16}}, {"RS1", {16, 18}},      {"RS0", {18, 19}},
      {"U2", {18, 21}},        {"U1", {21, 23}},  {"U0", {23, 24}}};
  for (const std::int64_t i : {0, 1, 7})
    expect_timeline(golden.iteration(i), shifted(first, 24.0 * static_cast<double>(i)));
  EXPECT_NEAR(golden.result.r_seconds, 18, 1e-9);
  EXPECT_NEAR(golden.result.bound_seconds, 6 + 12, 1e-9);
}

// One bucket hides nothing under backward: RS 12 to 18, U 18 to 24, AG 24 to 30, and the next forward
// from 30.
TEST(Golden, DearInOneBucket) {
  const Workload workload = golden_workload();
  const Grouping grouping = group(workload, AllInOne{});
  const Schedule schedule = make_dear(workload, grouping);
  const Result result = simulate(schedule, workload, grouping, kGoldenLink, {.ranks = 2, .iterations = 4});
  const Timeline first = with(first_compute(), {{"RS0", {12, 18}}, {"U0", {18, 24}}, {"AG0", {24, 30}}});
  for (const std::int64_t i : {0, 1, 3})
    expect_timeline(timeline(schedule, result, i), shifted(first, 30.0 * static_cast<double>(i)));
}

TEST(StepSeconds, AreRingsOnTheNetworkAndSharesOfTheUpdate) {
  const Workload workload = golden_workload();
  const Grouping grouping = group(workload, PerLayer{});
  const Link link{.alpha_seconds = 0.5, .beta_seconds_per_byte = 0.125};
  const Schedule dear = make_dear(workload, grouping), wfbp = make_wfbp(workload, grouping);
  const std::vector<double> of_dear = step_seconds(dear, workload, grouping, link, 4);
  // Bucket 1 of 16 bytes on 4 ranks: three rounds of 0.5 s and a quarter of it at 8 bytes a second, 3 * (0.5
  // + 0.5).
  EXPECT_DOUBLE_EQ(of_dear[dear.publishers_of(1).front()], 3);
  EXPECT_DOUBLE_EQ(of_dear[dear.update_of(1)], 1);  // 12 s * 16/48 bytes / 4 ranks
  EXPECT_EQ(of_dear[dear.commit()], 0);
  EXPECT_EQ(of_dear[dear.forward_of(1)], 2);
  EXPECT_EQ(of_dear[dear.backward_of(1)], 4);
  const std::vector<double> of_wfbp = step_seconds(wfbp, workload, grouping, link, 4);
  EXPECT_DOUBLE_EQ(of_wfbp[wfbp.update_of(1)], 4);
  for (StepId step = 0; step < of_wfbp.size(); ++step)
    if (const auto* work = std::get_if<Communicate>(&wfbp.steps()[step].work)) {
      EXPECT_DOUBLE_EQ(of_wfbp[step],
                       cost::ring_all_reduce_seconds(link, 4, grouping.buckets()[work->bucket].bytes));
    }
}

TEST(StepSeconds, OfPiecesAndBuffersAreOfTheirBytesAndNumber) {
  Workload workload = golden_workload();
  workload.buffer_bytes = 32;
  workload.buffers = 3;
  const Grouping grouping = group(workload, PerLayer{});
  const cost::CollectiveTimes times{
      .ranks = 2,
      .reduce_scatter = [](std::int64_t bytes) { return 2.0 * static_cast<double>(bytes); },
      .all_gather = [](std::int64_t bytes) { return 3.0 * static_cast<double>(bytes); },
      .all_reduce = [](std::int64_t bytes) { return 5.0 * static_cast<double>(bytes); },
      .broadcast = [](std::int64_t bytes) { return 7.0 * static_cast<double>(bytes); },
      .buffer_seconds = 100,
      .message_seconds = 1000};
  const auto seconds_by_name = [&](const Schedule& schedule) {
    std::map<std::string, double> seconds;
    const std::vector<double> of_step = step_seconds(schedule, workload, grouping, times);
    for (StepId step = 0; step < of_step.size(); ++step)
      seconds[name_of(schedule.steps()[step].work)] = of_step[step];
    return seconds;
  };
  const auto ddp = seconds_by_name(make_schedule(find_policy("ddp"), workload, grouping, times));
  EXPECT_EQ(ddp.at("broadcast of buffers"), 7 * 32 + 3 * 100);
  EXPECT_EQ(ddp.at("all-reduce of gradients, bucket 1"), 5 * 16);
  const auto fsdp = seconds_by_name(make_schedule(find_policy("fsdp"), workload, grouping, times));
  EXPECT_EQ(fsdp.at("reduce-scatter of gradients, bucket 2"), 2 * 24);
  EXPECT_EQ(fsdp.at("all-gather of parameters, bucket 2"), 3 * 24);
  EXPECT_EQ(fsdp.at("all-gather of parameters again, bucket 2"), 3 * 24);
  // Two ranks: rank 0 is told by one message what is ready and answers with another.
  const auto horovod = seconds_by_name(make_schedule(find_policy("horovod"), workload, grouping, times));
  EXPECT_EQ(horovod.at("all-reduce of gradients, bucket 1"), 2 * 1000 + 5 * 16);

  const Schedule wfbp = make_wfbp(workload, grouping);
  ScheduleBuilder cut(workload, grouping, "own");
  for (const Lane& lane : wfbp.lanes()) cut.lane(lane.name, lane.kind);
  LaneId network = 0;
  StepId first = 0;
  for (const Step& step : wfbp.steps()) {
    Work work = step.work;
    if (auto* all_reduce = std::get_if<Communicate>(&work); all_reduce && all_reduce->bucket == 1) {
      all_reduce->chunk = {0, 4};
      network = step.lane;
      first = cut.add(work, step.lane);
    } else {
      cut.add(work, step.lane);
    }
  }
  for (const Edge& edge : wfbp.edges()) cut.edge(edge.from, edge.to, edge.back);
  const StepId rest = cut.add(Communicate{Collective::all_reduce, Payload::gradients, 1, {4, 16}}, network);
  cut.edge(first, rest).edge(rest, wfbp.update_of(1));
  const auto chunks = seconds_by_name(std::move(cut).build());
  EXPECT_EQ(chunks.at("all-reduce of gradients, bucket 1, bytes 0 to 4"), 5 * 4);
  EXPECT_EQ(chunks.at("all-reduce of gradients, bucket 1, bytes 4 to 16"), 5 * 12);
}

TEST(Simulate, OneRankSpendsNothingOnTheNetwork) {
  const Workload workload = golden_workload();
  const Grouping grouping = group(workload, PerLayer{});
  const Result result =
      simulate(make_wfbp(workload, grouping), workload, grouping, kGoldenLink, {.ranks = 1});
  EXPECT_EQ(result.r_seconds, 0);
  EXPECT_NEAR(result.iteration_seconds, 4 + 8 + 12, 1e-9);
}

TEST(Simulate, KnowsNoBoundOfAScheduleThatNoPolicyMade) {
  const Workload workload = golden_workload();
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule dear = make_dear(workload, grouping);
  ScheduleBuilder own(workload, grouping, "own");
  for (const Lane& lane : dear.lanes()) own.lane(lane.name, lane.kind);
  for (const Step& step : dear.steps()) own.add(step.work, step.lane);
  for (const Edge& edge : dear.edges()) own.edge(edge.from, edge.to, edge.back);
  const Result result = simulate(std::move(own).build(), workload, grouping, kGoldenLink, {.ranks = 2});
  EXPECT_EQ(result.bound_seconds, 0);
  EXPECT_NEAR(result.iteration_seconds, 19, 1e-9);
}

TEST(Simulate, RefusesTooFewIterationsOrRanks) {
  const Workload workload = golden_workload();
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule schedule = make_dear(workload, grouping);
  EXPECT_THROW(simulate(schedule, workload, grouping, kGoldenLink, {.ranks = 2, .iterations = 3}),
               ConfigError);
  EXPECT_THROW(simulate(schedule, workload, grouping, kGoldenLink, {.ranks = 0}), ConfigError);
  EXPECT_THROW(step_seconds(schedule, workload, grouping, kGoldenLink, -1), ConfigError);
}

TEST(ToTrace, LooksAsAnyExecutorsTrace) {
  const Golden golden("dear");
  const Network network{.name = "1gbit", .link = {.alpha_seconds = 50e-6, .beta_seconds_per_byte = 8e-9}};
  const Trace trace = to_trace(golden.schedule, golden.workload, golden.result.spans, describe(network), 2);
  EXPECT_EQ(trace.title, "dear simulate, policy dear, 2 ranks");
  EXPECT_EQ(trace.network, "modelled: 1gbit (alpha 50 us, 1 Gb/s)");
  ASSERT_EQ(trace.spans.size(), golden.result.spans.size());
  std::map<std::string, std::pair<std::string, Activity>> seen;
  for (const Span& span : trace.spans) {
    EXPECT_EQ(span.rank, 0);
    seen[span.name] = {span.lane, span.activity};
  }
  using Look = std::pair<std::string, Activity>;
  EXPECT_EQ(seen.at("forward second"), (Look{"compute", Activity::forward}));
  EXPECT_EQ(seen.at("backward third"), (Look{"compute", Activity::backward}));
  EXPECT_EQ(seen.at("commit"), (Look{"compute", Activity::other}));
  EXPECT_EQ(seen.at("reduce-scatter bucket 2"), (Look{"network", Activity::communication}));
  EXPECT_EQ(seen.at("all-gather bucket 0"), (Look{"network", Activity::communication}));
  EXPECT_EQ(seen.at("update bucket 1"), (Look{"update", Activity::update}));
  EXPECT_EQ(seen.size(), golden.schedule.steps().size());
  EXPECT_THAT(conductor::order_violations(golden.schedule, trace, {}), IsEmpty());

  Trace corrupted = trace;
  for (Span& span : corrupted.spans)
    if (span.name == "all-gather bucket 0" && span.iteration == 3) span.begin_seconds -= 0.5;
  EXPECT_THAT(conductor::order_violations(golden.schedule, corrupted, {}),
              Each(HasSubstr("bucket 0 of iteration 3 began 500 ms")));
  EXPECT_FALSE(conductor::order_violations(golden.schedule, corrupted, {}).empty());
}

TEST(ToTrace, SaysHowTheNetworkWasModelled) {
  const Golden golden("wfbp");
  const auto network = [&](const Link& link) {
    return to_trace(golden.schedule, golden.workload, golden.result.spans,
                    describe(Network{.name = "own", .link = link}), 1)
        .network;
  };
  EXPECT_EQ(network({.alpha_seconds = 0.002, .beta_seconds_per_byte = 8 / 2.5e9}),
            "modelled: own (alpha 2 ms, 2.5 Gb/s)");
  EXPECT_EQ(network({.alpha_seconds = 1e-6, .beta_seconds_per_byte = 8 / 800e3}),
            "modelled: own (alpha 1 us, 800 kb/s)");
  EXPECT_THAT(network({.alpha_seconds = 1e-6, .beta_seconds_per_byte = 0}), HasSubstr("unlimited bandwidth"));
}

}  // namespace
}  // namespace dear::sim::simulate_test
