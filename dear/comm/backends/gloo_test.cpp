#include "dear/comm/gloo/gloo.h"

#include <functional>
#include <latch>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/reserved_port.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/gloo_in_test.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/shm/testing/ranks.h"

namespace dear::gloo_test {
namespace {

using backends::testing::gloo_group;
using comm::testing::check_group;
using comm::testing::ConformanceOptions;
using comm::testing::Order;
using comm::testing::run_on_threads;
using os::testing::ReservedPort;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> run(int size, const backends::AwaitedOptions& options,
                             const std::function<void(Group&)>& body) {
  const ReservedPort port;
  return run_on_threads(size, [&](int rank) {
    Group group = gloo_group(port.number(), rank, size, std::chrono::seconds(60), options);
    body(group);
  });
}

class Gloo : public ::testing::TestWithParam<int> {};

TEST_P(Gloo, DoesEveryCollective) {
  const ConformanceOptions few{.counts = {17, 20'011}, .order = Order::fixed};
  EXPECT_THAT(run(GetParam(), {}, [&](Group& group) { check_group(group, few); }), Each("ok"));
}

TEST_P(Gloo, AddsInTheOrderOfRanksWhenAsked) {
  const ConformanceOptions few{
      .dtypes = {DType::f32, DType::bf16}, .counts = {17, 20'011}, .order = Order::ranks};
  EXPECT_THAT(run(GetParam(), {.reproducible = true}, [&](Group& group) { check_group(group, few); }),
              Each("ok"));
}

TEST_P(Gloo, HasParts) {
  if (GetParam() <= 4) {
    EXPECT_THAT(run(GetParam(), {}, comm::testing::check_parts), Each("ok"));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Gloo, ::testing::Range(1, 9));

TEST(GlooOnThreads, LargeVectorsTravelInSegments) {
  EXPECT_THAT(run(3, {},
                  [](Group& group) {
                    check_group(group, {.dtypes = {DType::f32},
                                        .reductions = {Reduction::sum},
                                        .counts = {1'500'001},
                                        .order = Order::fixed});
                  }),
              Each("ok"));
}

TEST(GlooOnThreads, DifferentCountsAreNamedOnEveryRank) {
  const auto reports = run(3, {}, [](Group& group) {
    const Buffer buffer = group.allocate(1 << 20);
    const std::int64_t count = group.rank() == 1 ? 100'000 : 100'001;
    group.all_reduce({.buffer = buffer, .count = count}, Reduction::sum).wait();
    group.barrier().wait();
  });
  for (const std::string& report : reports) {
    EXPECT_THAT(report, AllOf(HasSubstr("rank 1"), HasSubstr("100000"), HasSubstr("100001")));
  }
  EXPECT_THAT(reports, ::testing::Contains(StartsWith("MismatchError")));
}

// Most of them wait for a rank that waits itself.
TEST(GlooOnThreads, WaitsForARankThatDoesNothingEndInTimeAndNameIt) {
  constexpr int kSize = 4;
  std::latch over(kSize - 1);  // rank 1 stays until the others have given up
  const ReservedPort port;
  const auto reports = run_on_threads(kSize, [&](int rank) {
    auto backend = backends::make_gloo(backends::testing::at_port(port.number(), rank, kSize));
    Group group(std::move(backend), {.timeout = std::chrono::milliseconds(rank == 1 ? 60'000 : 50)});
    if (rank == 1) return over.wait();
    try {
      group.barrier().wait();
    } catch (const Error&) {
      over.count_down();
      throw;
    }
  });
  for (const int rank : {0, 2, 3})
    EXPECT_THAT(reports[static_cast<std::size_t>(rank)], HasSubstr("nothing came from rank 1 in time"));
  EXPECT_THAT(reports, ::testing::Contains(StartsWith("TimeoutError")));
  EXPECT_EQ(reports[1], "ok");
}

TEST(GlooOnThreads, IsUsefulToTheToolsOfGroups) {
  EXPECT_THAT(run(4, {},
                  [](Group& group) {
                    EXPECT_THAT(group.description(), HasSubstr("Gloo 0."));
                    const auto texts =
                        all_gather_text(group, std::string(static_cast<std::size_t>(group.rank()), 'x'));
                    EXPECT_THAT(texts, ::testing::ElementsAre("", "x", "xx", "xxx"));
                  }),
              Each("ok"));
}

}  // namespace
}  // namespace dear::gloo_test
