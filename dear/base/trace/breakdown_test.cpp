#include "dear/base/trace/breakdown.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/trace/summary.h"

namespace dear::breakdown_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Span span(int rank, std::string lane, std::string name, Activity activity, std::int64_t iteration,
          double begin, double end) {
  return {.rank = rank,
          .lane = std::move(lane),
          .name = std::move(name),
          .activity = activity,
          .iteration = iteration,
          .begin_seconds = begin,
          .end_seconds = end};
}

// Two iterations of 20 s on each rank; rank 1 computes half as long again. From the begin t of an iteration:
//   rank 0  compute  forward t..t+4  backward t+4..t+10
//           network                                reduce-scatter bucket 0 t+8..t+16
//   rank 1  compute  forward t..t+6  backward t+6..t+15
//           network                                reduce-scatter bucket 0 t+12..t+16
// In t+16..t+20 both rest; the last window ends with the last span, at 36.
Trace two_ranks() {
  Trace trace{.title = "two ranks", .network = "", .spans = {}};
  for (const std::int64_t i : {0, 1}) {
    const auto t = static_cast<double>(20 * i);
    for (const int rank : {0, 1}) {
      const double slow = rank == 1 ? 1.5 : 1;
      trace.spans.push_back(span(rank, "compute", "forward", Activity::forward, i, t, t + 4 * slow));
      trace.spans.push_back(
          span(rank, "compute", "backward", Activity::backward, i, t + 4 * slow, t + 10 * slow));
      trace.spans.push_back(span(rank, "network", "reduce-scatter bucket 0", Activity::communication, i,
                                 t + (rank == 1 ? 12 : 8), t + 16));
    }
  }
  return trace;
}

TEST(Breakdown, PartsOfARankAddUp) {
  const TraceBreakdown breakdown = break_down(two_ranks());
  ASSERT_EQ(breakdown.ranks.size(), 2U);
  const RankBreakdown& first = breakdown.ranks[0];
  EXPECT_EQ(first.iterations, 2);
  EXPECT_DOUBLE_EQ(first.iteration_seconds, (20.0 + 16) / 2);
  EXPECT_DOUBLE_EQ(first.computation_seconds, 8);
  EXPECT_DOUBLE_EQ(first.hidden_seconds, 2);
  EXPECT_DOUBLE_EQ(first.exposed_seconds, 6);
  EXPECT_DOUBLE_EQ(first.idle_seconds, (4.0 + 0) / 2);
  EXPECT_DOUBLE_EQ(first.communication_seconds, 8);
  const RankBreakdown& second = breakdown.ranks[1];
  EXPECT_DOUBLE_EQ(second.computation_seconds, 12);
  EXPECT_DOUBLE_EQ(second.hidden_seconds, 3);
  EXPECT_DOUBLE_EQ(second.exposed_seconds, 1);
  EXPECT_THAT(first.exposed.parts(), ElementsAre(trace::Interval{10, 16}, trace::Interval{30, 36}));
}

TEST(Breakdown, IsThatOfTheSummaryWhereIterationsAreAlike) {
  const Trace trace = two_ranks();
  const TraceSummary summary = summarize(trace);
  const TraceBreakdown breakdown = break_down(trace);
  EXPECT_DOUBLE_EQ(summary.exposed_seconds,
                   (breakdown.ranks[0].exposed_seconds + breakdown.ranks[1].exposed_seconds) / 2);
}

TEST(Breakdown, CollectivesSayTheirBucketAndWhatWasExposed) {
  Trace trace = two_ranks();
  trace.spans.push_back(span(0, "network", "broadcast", Activity::communication, 0, 1, 2));
  const std::vector<CollectiveBreakdown> all = break_down(trace).collectives;
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "broadcast");
  EXPECT_EQ(all[0].bucket, -1);
  EXPECT_DOUBLE_EQ(all[0].seconds, 0.25);  // 1 s of 4 iterations of a rank
  EXPECT_DOUBLE_EQ(all[0].exposed_seconds, 0);
  EXPECT_EQ(all[1].bucket, 0);
  EXPECT_DOUBLE_EQ(all[1].seconds, 6);
  EXPECT_DOUBLE_EQ(all[1].exposed_seconds, 3.5);
}

TEST(Breakdown, NamesTheLongestFirst) {
  const std::vector<NamedTime> names = break_down(two_ranks()).names;
  ASSERT_EQ(names.size(), 3U);
  EXPECT_EQ(names[0].name, "backward");
  EXPECT_EQ(names[0].activity, Activity::backward);
  EXPECT_DOUBLE_EQ(names[0].count, 1);
  EXPECT_DOUBLE_EQ(names[0].seconds, 7.5);
}

// The median of 10 and 15 is 12.5.
TEST(Breakdown, FindsWhoComputesLonger) {
  const std::vector<Straggler> slow = break_down(two_ranks()).stragglers;
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].rank, 1);
  EXPECT_DOUBLE_EQ(slow[0].slowdown, 15 / 12.5);
  Trace alone = two_ranks();
  std::erase_if(alone.spans, [](const Span& one) { return one.rank == 1; });
  EXPECT_THAT(break_down(alone).stragglers, IsEmpty());
}

TEST(Breakdown, OfATraceWithoutIterationsIsEmpty) {
  const TraceBreakdown breakdown =
      break_down({.spans = {span(0, "network", "all-reduce", Activity::communication, -1, 0, 1)}});
  ASSERT_EQ(breakdown.ranks.size(), 1U);
  EXPECT_EQ(breakdown.ranks[0].iterations, 0);
  EXPECT_THAT(breakdown.collectives, IsEmpty());
}

}  // namespace
}  // namespace dear::breakdown_test
