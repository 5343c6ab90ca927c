#include "dear/systems/train_command/trace_gather.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::train_command::trace_gather_test {
namespace {

std::vector<Span> spans_of(int rank) {
  std::vector<Span> spans;
  for (int i = 0; i < 50 + rank; ++i) {
    spans.push_back({.rank = rank,
                     .lane = i % 2 == 0 ? "compute" : "network",
                     .name = i % 2 == 0 ? "forward \"block.3\"" : "all-gather bucket 2",
                     .activity = static_cast<Activity>(i % 6),
                     .iteration = i / 10 - 1,
                     .step = i % 7 - 1,
                     .begin_seconds = 1e5 + i / 3.0,
                     .end_seconds = 1e5 + (i + 1) / 3.0});
  }
  return spans;
}

void expect_equal(const std::vector<Span>& left, const std::vector<Span>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].rank, right[i].rank) << i;
    EXPECT_EQ(left[i].lane, right[i].lane) << i;
    EXPECT_EQ(left[i].name, right[i].name) << i;
    EXPECT_EQ(left[i].activity, right[i].activity) << i;
    EXPECT_EQ(left[i].iteration, right[i].iteration) << i;
    EXPECT_EQ(left[i].step, right[i].step) << i;
    EXPECT_EQ(left[i].begin_seconds, right[i].begin_seconds) << i;
    EXPECT_EQ(left[i].end_seconds, right[i].end_seconds) << i;
  }
}

TEST(TraceGather, SpansComeBackAsTheyWere) {
  expect_equal(decode_spans(encode_spans(spans_of(3))), spans_of(3));
  EXPECT_TRUE(decode_spans(encode_spans({})).empty());
}

TEST(TraceGather, SpansThatNoRankWritesAreRefused) {
  const auto text = [](const std::string& row) { return R"({"names": ["a"], "spans": [)" + row + "]}"; };
  ASSERT_EQ(decode_spans(text("[1, 0, 0, 6, -1, -1, 0.5, 1.5]")).size(), 1U);
  for (const char* row : {"[]", "7", "[1, 0, 0, 6, -1, -1, 0.5]", "[-1, 0, 0, 6, -1, -1, 0.5, 1.5]",
                          "[1, 1, 0, 6, -1, -1, 0.5, 1.5]", "[1, 0, -1, 6, -1, -1, 0.5, 1.5]",
                          "[1, 0, 0, 7, -1, -1, 0.5, 1.5]", "[1, 0, 0, 6, 1e300, -1, 0.5, 1.5]",
                          "[1, 0, 0, 6, -1, -2, 0.5, 1.5]", "[1, 0, 0, 6, -1, -1, \"0\", 1.5]"}) {
    EXPECT_THROW(decode_spans(text(row)), ConfigError) << row;
  }
}

TEST(TraceGather, EveryRankGetsTheSpansOfAllByRank) {
  constexpr int kRanks = 3;
  auto backends = backends::testing::make_shm_threads(kRanks);
  std::vector<Trace> gathered(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const Group group(std::move(backends[static_cast<std::size_t>(rank)]), {});
      gathered[static_cast<std::size_t>(rank)] =
          gather_trace(group, {.title = "title", .network = "modelled", .spans = spans_of(rank)});
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<Span> all;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto spans = spans_of(rank);
    all.insert(all.end(), spans.begin(), spans.end());
  }
  for (const Trace& trace : gathered) {
    EXPECT_EQ(trace.title, "title");
    EXPECT_EQ(trace.network, "modelled");
    expect_equal(trace.spans, all);
  }
}

}  // namespace
}  // namespace dear::train_command::trace_gather_test
