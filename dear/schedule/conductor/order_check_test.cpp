#include "dear/schedule/conductor/testing/order_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/schedule/policies/policy.h"

namespace dear::conductor::order_check_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Workload& one_layer() {
  static const Workload kWorkload{.name = "one layer",
                                  .tensors = {{.name = "w", .elements = 1}},
                                  .layers = {{.name = "only", .tensors = {0}}}};
  return kWorkload;
}

// Steps 0 to 5: forward, backward, commit, reduce-scatter, update of the shard, all-gather.
Schedule dear_of_one_layer() { return make_dear(one_layer(), group(one_layer(), AllInOne{})); }

// Two iterations, a second each step; the commit is ended with the backward.
std::vector<StepSpan> good_run() {
  std::vector<StepSpan> spans;
  for (const std::int64_t i : {0, 1}) {
    const double start = 5.0 * static_cast<double>(i);
    spans.push_back({{0, i}, start, start + 1});
    spans.push_back({{1, i}, start + 1, start + 2});
    spans.push_back({{2, i}, start + 2, start + 2});
    spans.push_back({{3, i}, start + 2, start + 3});
    spans.push_back({{4, i}, start + 3, start + 4});
    spans.push_back({{5, i}, start + 4, start + 5});
  }
  return spans;
}

Trace trace_of(const std::vector<StepSpan>& spans, int rank) {
  Trace trace;
  for (const StepSpan& span : spans)
    trace.spans.push_back({.rank = rank,
                           .lane = "",
                           .name = "",
                           .iteration = span.which.iteration,
                           .step = span.which.step,
                           .begin_seconds = span.begin_seconds,
                           .end_seconds = span.end_seconds});
  return trace;
}

TEST(OrderCheck, AcceptsARunInOrder) {
  EXPECT_THAT(order_violations(dear_of_one_layer(), good_run(), {}), IsEmpty());
  EXPECT_THAT(order_violations(dear_of_one_layer(), trace_of(good_run(), 0), {}), IsEmpty());
}

TEST(OrderCheck, SaysWhoBeganBeforeWhom) {
  std::vector<StepSpan> spans = good_run();
  spans[4].begin_seconds -= 12e-6;
  EXPECT_THAT(order_violations(dear_of_one_layer(), spans, {}),
              ElementsAre(ContainsRegex("^update of shard.* began 12 us before reduce-scatter")));
}

TEST(OrderCheck, FollowsEdgesIntoTheNextIteration) {
  std::vector<StepSpan> spans = good_run();
  spans[5].end_seconds = 5.5;
  EXPECT_THAT(
      order_violations(dear_of_one_layer(), spans, {}),
      ElementsAre(ContainsRegex("^forward 0 of iteration 1 began 500 ms before all-gather.* iteration 0")));
}

TEST(OrderCheck, ForgivesWhatTheToleranceCovers) {
  std::vector<StepSpan> spans = good_run();
  spans[4].begin_seconds -= 12e-6;
  EXPECT_THAT(order_violations(dear_of_one_layer(), spans, {.tolerance_seconds = 13e-6}), IsEmpty());
  EXPECT_THAT(order_violations(dear_of_one_layer(), spans, {.tolerance_seconds = 11e-6}), SizeIs(1));
}

TEST(OrderCheck, ChecksTheComputeLanesOrderUnlessItIsFree) {
  std::vector<StepSpan> spans = good_run();
  spans[6].begin_seconds = spans[6].end_seconds =
      6.5;  // forward 0 under its backward: an order of the program's own
  EXPECT_THAT(order_violations(dear_of_one_layer(), spans, {}),
              ElementsAre(ContainsRegex("^backward 0 of iteration 1 began 500 ms before forward 0")));
  EXPECT_THAT(order_violations(dear_of_one_layer(), spans, {.free = {.compute = true}}), IsEmpty());
}

TEST(OrderCheck, DoesNotMissSpansThatWereNotTraced) {
  std::vector<StepSpan> spans = good_run();
  std::erase_if(spans, [](const StepSpan& span) { return span.which.step <= 2; });
  EXPECT_THAT(order_violations(dear_of_one_layer(), spans, {}), IsEmpty());
  EXPECT_THAT(order_violations(dear_of_one_layer(), std::vector<StepSpan>{}, {}), IsEmpty());
}

TEST(OrderCheck, ReportsSpansThatCannotBe) {
  const std::vector<StepSpan> spans = {
      {{0, 0}, 0, 1}, {{0, 0}, 2, 3}, {{1, 0}, 5, 4}, {{17, 0}, 0, 1}, {{3, -1}, 0, 1}};
  EXPECT_THAT(order_violations(dear_of_one_layer(), spans, {}),
              ElementsAre(ContainsRegex("^forward 0 .*twice"), ContainsRegex("^backward 0 .* 1 s before"),
                          ContainsRegex("^step 17 of iteration 0 .*none"),
                          ContainsRegex("^step 3 of iteration -1 .*none")));
}

TEST(OrderCheck, StopsAtTheLimit) {
  std::vector<StepSpan> spans = good_run();
  for (StepSpan& span : spans) span.begin_seconds -= 0.5;
  EXPECT_THAT(order_violations(dear_of_one_layer(), spans, {.limit = 3}), SizeIs(3));
  EXPECT_GT(order_violations(dear_of_one_layer(), spans, {.limit = 1000}).size(), 10U);
}

TEST(OrderCheck, KeepsRanksOfATraceApart) {
  Trace trace = trace_of(good_run(), 0);
  std::vector<StepSpan> later = good_run();  // another rank's clock does not concern this one
  for (StepSpan& span : later) {
    span.begin_seconds += 100;
    span.end_seconds += 100;
  }
  later[3].begin_seconds -= 0.25;
  for (const Span& span : trace_of(later, 1).spans) trace.spans.push_back(span);
  trace.spans.push_back(
      {.rank = 0, .lane = "compute", .name = "wait", .begin_seconds = -5, .end_seconds = 50});
  EXPECT_THAT(order_violations(dear_of_one_layer(), trace, {}),
              ElementsAre(ContainsRegex("^rank 1: reduce-scatter.* began 250 ms before backward 0")));
}

TEST(OrderCheck, ReportsStepsOfATraceThatNoScheduleCouldHave) {
  Trace trace;
  trace.spans.push_back({.rank = 2, .lane = "", .name = "", .iteration = 0, .step = std::int64_t{1} << 32});
  EXPECT_THAT(order_violations(dear_of_one_layer(), trace, {}), SizeIs(1));
}

}  // namespace
}  // namespace dear::conductor::order_check_test
