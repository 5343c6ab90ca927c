#include "dear/base/trace/summary.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::summary_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Span compute(std::string name, Activity activity, std::int64_t iteration, double begin, double end) {
  return {.lane = "compute",
          .name = std::move(name),
          .activity = activity,
          .iteration = iteration,
          .begin_seconds = begin,
          .end_seconds = end};
}
Span network(std::string name, std::int64_t iteration, double begin, double end) {
  return {.lane = "network",
          .name = std::move(name),
          .activity = Activity::communication,
          .iteration = iteration,
          .begin_seconds = begin,
          .end_seconds = end};
}
Trace trace_of(std::vector<Span> spans) {
  return {.title = "a run", .network = "", .spans = std::move(spans)};
}

std::vector<std::pair<std::string, double>> waits_of(const TraceSummary& summary) {
  std::vector<std::pair<std::string, double>> waits;
  for (const auto& wait : summary.slowest_waits) waits.emplace_back(wait.name, wait.total_seconds);
  return waits;
}

// A simulated wait-free backpropagation, twice, each iteration 12 s long from its begin t:
//   compute   forward t..t+2   backward 1 t+2..t+4   backward 0 t+4..t+6             update t+11..t+12
//   network                                          all-reduce 1 t+4..t+7   all-reduce 0 t+8..t+11
// Communication 3 + 3 = 6. Exposed: the compute lane stands still in t+6..t+11; the network works in t+6..t+7
// and in t+8..t+11, so 1 + 3 = 4. In t+7..t+8 both stand still, which the network cannot be blamed for.
TEST(Summary, OfASimulatedTraceTakesGapsUnderCommunicationAsExposed) {
  std::vector<Span> spans;
  for (const std::int64_t i : {0, 1}) {
    const auto t = static_cast<double>(12 * i);
    spans.push_back(compute("forward 0", Activity::forward, i, t, t + 2));
    spans.push_back(compute("backward 1", Activity::backward, i, t + 2, t + 4));
    spans.push_back(compute("backward 0", Activity::backward, i, t + 4, t + 6));
    spans.push_back(network("all-reduce 1", i, t + 4, t + 7));
    spans.push_back(network("all-reduce 0", i, t + 8, t + 11));
    spans.push_back(compute("update", Activity::update, i, t + 11, t + 12));
  }
  const TraceSummary summary = summarize(trace_of(spans));
  EXPECT_EQ(summary.ranks, 1);
  EXPECT_EQ(summary.iterations, 2);
  EXPECT_DOUBLE_EQ(summary.iteration_seconds, 12);
  EXPECT_DOUBLE_EQ(summary.forward_seconds, 2);
  EXPECT_DOUBLE_EQ(summary.backward_seconds, 4);
  EXPECT_DOUBLE_EQ(summary.update_seconds, 1);
  EXPECT_DOUBLE_EQ(summary.communication_seconds, 6);
  EXPECT_DOUBLE_EQ(summary.exposed_seconds, 4);
  EXPECT_DOUBLE_EQ(summary.hidden_fraction, 1 - 4.0 / 6);
  EXPECT_THAT(waits_of(summary), ::testing::ElementsAre(std::pair("before update", 4.0)));
}

// A live DeAR iteration, three times, each 10 s long from its begin t. Waits lie inside of the forward spans:
//   compute   forward 0 t..t+3       forward 1 t+3..t+5          backward t+5..t+9     (nothing t+9..t+10)
//   waits     bucket 0 t..t+2        bucket 1 t+3..t+3.5
//   network   all-gather 0 t-1..t+2  all-gather 1 t+2..t+3.25    reduce-scatter t+6..t+9 (the all-gather of
//   the next) update    in a lane of its own t+8.5..t+9.5
// Forward is 3 + 2 less the waits of 2.5, so 2.5. In the window t..t+10: communication t..t+3.25 and
// t+6..t+10, where t+9..t+10 is the next all-gather, which the last iteration lacks: 7.25, 7.25 and 6.25.
// Exposed: the waits 2.5, of which t+3.25..t+3.5 had nothing on this wire, and t+9..t+10 in the first
// two: 3.5, 3.5 and 2.5.
TEST(Summary, OfALiveTraceTakesWaitsOutOfTheComputation) {
  std::vector<Span> spans;
  for (const std::int64_t i : {0, 1, 2}) {
    const auto t = static_cast<double>(100 + 10 * i);
    spans.push_back(compute("forward 0", Activity::forward, i, t, t + 3));
    spans.push_back(compute("wait for bucket 0", Activity::wait, i, t, t + 2));
    spans.push_back(compute("forward 1", Activity::forward, i, t + 3, t + 5));
    spans.push_back(compute("wait for bucket 1", Activity::wait, i, t + 3, t + 3.5));
    spans.push_back(compute("backward", Activity::backward, i, t + 5, t + 9));
    spans.push_back(network("all-gather 0", i - 1, t - 1, t + 2));
    spans.push_back(network("all-gather 1", i - 1, t + 2, t + 3.25));
    spans.push_back(network("reduce-scatter", i, t + 6, t + 9));
    spans.push_back({.lane = "update",
                     .name = "update",
                     .activity = Activity::update,
                     .iteration = i,
                     .begin_seconds = t + 8.5,
                     .end_seconds = t + 9.5});
  }
  spans.push_back(compute("end", Activity::other, -1, 130, 130));  // the last window ends with the last span
  const TraceSummary summary = summarize(trace_of(spans));
  EXPECT_EQ(summary.iterations, 3);
  EXPECT_DOUBLE_EQ(summary.iteration_seconds, 10);
  EXPECT_DOUBLE_EQ(summary.forward_seconds, 2.5);
  EXPECT_DOUBLE_EQ(summary.backward_seconds, 4);
  EXPECT_DOUBLE_EQ(summary.update_seconds, 1);
  EXPECT_DOUBLE_EQ(summary.communication_seconds, 7.25);
  EXPECT_DOUBLE_EQ(summary.exposed_seconds, 3.5);
  EXPECT_DOUBLE_EQ(summary.hidden_fraction, 1 - 3.5 / 7.25);
  // The gaps of t+9..t+10 hold up the forward that follows, in two iterations of three.
  EXPECT_THAT(waits_of(summary), ::testing::ElementsAre(std::pair("wait for bucket 0", 2.0),
                                                        std::pair("before forward 0", 2.0 / 3),
                                                        std::pair("wait for bucket 1", 0.5)));
}

// Iterations of 7, 1, 2, 30 and 5 s: the first and the last are left out, the median of 1, 2 and 30 is 2.
TEST(Summary, IsTheMedianWithoutFirstAndLast) {
  std::vector<Span> spans;
  double t = 0;
  std::int64_t i = 0;
  for (const double length : {7, 1, 2, 30, 5}) {
    spans.push_back(compute("forward", Activity::forward, i++, t, t + length));
    t += length;
  }
  const TraceSummary summary = summarize(trace_of(spans));
  EXPECT_EQ(summary.iterations, 5);
  EXPECT_DOUBLE_EQ(summary.iteration_seconds, 2);
  EXPECT_DOUBLE_EQ(summary.forward_seconds, 2);
  EXPECT_EQ(summary.hidden_fraction, 0);
  EXPECT_TRUE(summary.slowest_waits.empty());
}

// Rank 0 waits 1 s, rank 1 waits 3 s: 2 s in the mean.
TEST(Summary, IsTheMeanOverRanks) {
  std::vector<Span> spans;
  for (const int rank : {0, 1}) {
    const double wait = rank == 0 ? 1 : 3;
    Span forward = compute("forward", Activity::forward, 0, 0, 4 + wait);
    Span waiting = compute("wait for bucket 0", Activity::wait, 0, 0, wait);
    forward.rank = waiting.rank = rank;
    spans.push_back(forward);
    spans.push_back(waiting);
  }
  const TraceSummary summary = summarize(trace_of(spans));
  EXPECT_EQ(summary.ranks, 2);
  EXPECT_DOUBLE_EQ(summary.iteration_seconds, 6);
  EXPECT_DOUBLE_EQ(summary.forward_seconds, 4);
  EXPECT_DOUBLE_EQ(summary.exposed_seconds, 2);
  EXPECT_EQ(summary.hidden_fraction, 0);  // nothing was on the wire
  EXPECT_THAT(waits_of(summary), ::testing::ElementsAre(std::pair("wait for bucket 0", 2.0)));
}

TEST(Summary, CountsOverlappingCollectivesOnce) {
  const TraceSummary summary = summarize(trace_of(
      {compute("forward", Activity::forward, 0, 0, 10), network("a", 0, 1, 5), network("b", 0, 3, 7)}));
  EXPECT_DOUBLE_EQ(summary.communication_seconds, 6);
  EXPECT_DOUBLE_EQ(summary.exposed_seconds, 0);
  EXPECT_DOUBLE_EQ(summary.hidden_fraction, 1);
}

// Waiting for longer than the network works, as for a slow rank, hides nothing, and not less than nothing.
TEST(Summary, HidesAtLeastNothing) {
  const TraceSummary summary =
      summarize(trace_of({compute("forward", Activity::forward, 0, 0, 10),
                          compute("wait", Activity::wait, 0, 1, 9), network("a", 0, 1, 5)}));
  EXPECT_DOUBLE_EQ(summary.exposed_seconds, 8);
  EXPECT_EQ(summary.hidden_fraction, 0);
}

// What comes before the first iteration, such as the broadcast at the start, is in no window.
TEST(Summary, LeavesOutWhatIsBeforeTheFirstIteration) {
  const TraceSummary summary = summarize(
      trace_of({network("broadcast", -1, 0, 50), compute("forward", Activity::forward, 0, 60, 61)}));
  EXPECT_EQ(summary.communication_seconds, 0);
  EXPECT_DOUBLE_EQ(summary.iteration_seconds, 1);
}

TEST(Summary, OfNothingIsNothing) {
  const TraceSummary summary = summarize(Trace{});
  EXPECT_EQ(summary.ranks, 0);
  EXPECT_EQ(summary.iterations, 0);
  EXPECT_EQ(summary.iteration_seconds, 0);
  EXPECT_THAT(to_text(summary, Trace{}), HasSubstr("iteration"));
}

TEST(Summary, CountsOtherComputationByItself) {
  const Trace trace = trace_of({compute("forward", Activity::forward, 0, 0, 2),
                                compute("inverse of A of conv1", Activity::other, 0, 2, 5)});
  EXPECT_DOUBLE_EQ(summarize(trace).other_seconds, 3);
  EXPECT_THAT(to_text(summarize(trace), trace), HasSubstr("other computation"));
  const Trace without = trace_of({compute("forward", Activity::forward, 0, 0, 2)});
  EXPECT_THAT(to_text(summarize(without), without), ::testing::Not(HasSubstr("other computation")));
}

TEST(Summary, KeepsTheFiveSlowestWaits) {
  std::vector<Span> spans{compute("forward", Activity::forward, 0, 0, 100)};
  for (int w = 1; w <= 7; ++w) {
    spans.push_back(compute("wait " + std::to_string(w), Activity::wait, 0, 10 * w, 11 * w));
  }
  const TraceSummary summary = summarize(trace_of(spans));
  ASSERT_EQ(summary.slowest_waits.size(), 5U);
  EXPECT_EQ(summary.slowest_waits.front().name, "wait 7");
  EXPECT_EQ(summary.slowest_waits.back().name, "wait 3");
}

TEST(SummaryText, IsATable) {
  Trace trace =
      trace_of({compute("forward", Activity::forward, 0, 0, 0.008),
                compute("wait for bucket 0", Activity::wait, 0, 0.006, 0.008),
                compute("update", Activity::update, 0, 0.008, 0.01), network("all-gather", 0, 0.004, 0.008)});
  EXPECT_EQ(to_text(summarize(trace), trace),
            "a run\n"
            "network: real, not modelled\n"
            "ranks: 1\n"
            "iterations: 1\n"
            "\n"
            "iteration                   10 ms  100 %\n"
            "  forward                    6 ms   60 %\n"
            "  backward                    0 s    0 %\n"
            "  update                     2 ms   20 %\n"
            "communication                4 ms   40 %\n"
            "  exposed communication      2 ms   20 %\n"
            "  hidden                     50 %\n"
            "\n"
            "slowest waits, per rank and iteration\n"
            "  wait for bucket 0          2 ms   20 %\n");
  trace.network = "modelled: 1gbit (1 Gb/s and 50 us a message)";
  EXPECT_THAT(
      to_text(summarize(trace), trace),
      AllOf(HasSubstr("network: modelled: 1gbit (1 Gb/s and 50 us a message)\n"), Not(HasSubstr("real"))));
}

}  // namespace
}  // namespace dear::summary_test
