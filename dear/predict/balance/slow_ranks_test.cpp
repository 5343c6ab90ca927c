#include "dear/predict/balance/slow_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<ComputeSeconds> kAlike{{.forward = 0.01, .backward = 0.02},
                                         {.forward = 0.01, .backward = 0.02},
                                         {.forward = 0.0104, .backward = 0.021}};
std::vector<ComputeSeconds> slow(double forward, double backward) {
  std::vector<ComputeSeconds> ranks = kAlike;
  ranks[1] = {.forward = forward, .backward = backward};
  return ranks;
}

TEST(SlowRanks, AreNamedOnceAfterThreeWindows) {
  SlowRanks ranks({"a", "b", "c"});
  EXPECT_THAT(ranks.window_ended(slow(0.01, 0.03), 30), IsEmpty());
  EXPECT_THAT(ranks.window_ended(slow(0.01, 0.03), 31), IsEmpty());
  EXPECT_THAT(ranks.window_ended(slow(0.01, 0.03), 30),
              ElementsAre(AllOf(HasSubstr("rank 1 on host b computes 27 %"), HasSubstr("for 91 s"),
                                HasSubstr("40 ms a step beside 3"), HasSubstr("backward pass, update"))));
  EXPECT_THAT(ranks.window_ended(slow(0.01, 0.03), 30), IsEmpty());
  // It recovers for a window, and comes back in the forward pass.
  EXPECT_THAT(ranks.window_ended(kAlike, 30), IsEmpty());
  EXPECT_THAT(ranks.window_ended(slow(0.02, 0.02), 30), IsEmpty());
  EXPECT_THAT(ranks.window_ended(slow(0.02, 0.02), 30), IsEmpty());
  EXPECT_THAT(ranks.window_ended(slow(0.02, 0.02), 30), ElementsAre(HasSubstr("data, forward pass")));
}

TEST(SlowRanks, AreNoneWithinTheLimitOrWithoutTimes) {
  SlowRanks ranks({"a", "b", "c"}, {.behind = 0.2, .windows = 1});
  EXPECT_THAT(ranks.window_ended(slow(0.01, 0.0255), 30), IsEmpty());  // 18 %
  EXPECT_THAT(ranks.window_ended(slow(0.01, 0.0285), 30), ElementsAre(HasSubstr("rank 1")));
  EXPECT_THAT(ranks.window_ended({{}, {}, {}}, 30), IsEmpty());
  SlowRanks two({"a", "b"}, {.behind = 0.2, .windows = 1});
  EXPECT_THAT(two.window_ended({{.forward = 1, .backward = 1}, {.forward = 1, .backward = 2}}, 30),
              ElementsAre(HasSubstr("rank 1")));  // of two the quicker one is typical
}

}  // namespace
}  // namespace dear
