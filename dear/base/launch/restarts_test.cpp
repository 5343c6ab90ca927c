#include "dear/base/launch/restarts.h"

#include <csignal>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::launch {
namespace {

using ::testing::HasSubstr;

TEST(Restarts, StartAsManyRanksWhileTheJobGetsFurther) {
  Restarts restarts(4, 4, 3);
  EXPECT_EQ(restarts.after({.rank = 1, .signal = SIGKILL, .step = 10}), 4);
  EXPECT_EQ(restarts.after({.rank = 1, .signal = SIGKILL, .step = 25}), 4);
  EXPECT_EQ(restarts.after({.rank = 3, .signal = 0, .step = 31}), 4);
  EXPECT_EQ(restarts.restarts(), 3);
  EXPECT_FALSE(restarts.after({.rank = 0, .step = 40}));
  EXPECT_THAT(restarts.why(), HasSubstr("all 3 restarts are used up"));
}

TEST(Restarts, CountNoPreemption) {
  Restarts restarts(2, 2, 1);
  for (int step = 10; step < 100; step += 10)
    EXPECT_EQ(restarts.after({.rank = 0, .signal = SIGTERM, .step = step}), 2);
  EXPECT_EQ(restarts.after({.rank = 0, .signal = SIGTERM, .step = 5}), 2);  // before it has got further
  EXPECT_EQ(restarts.after({.rank = 1, .signal = SIGKILL, .step = 100}), 2);
  EXPECT_FALSE(restarts.after({.rank = 1, .signal = SIGKILL, .step = 200}));
}

TEST(Restarts, LeaveOutARankThatFailsWithoutProgress) {
  Restarts restarts(3, 5, 10);
  EXPECT_EQ(restarts.after({.rank = 2, .step = 10}), 5);
  EXPECT_EQ(restarts.after({.rank = 2, .step = 10}), 4);
  EXPECT_EQ(restarts.after({.rank = 0, .step = 50}), 4);
  EXPECT_EQ(restarts.after({.rank = 0, .step = 50}), 3);
  EXPECT_EQ(restarts.after({.rank = 1, .step = 60}), 3);
  EXPECT_FALSE(restarts.after({.rank = 1, .step = 60}));  // fewer are not allowed
  EXPECT_THAT(restarts.why(), HasSubstr("at step 60"));
}

TEST(Restarts, TakeFailuresAtOnceForOne) {
  Restarts restarts(2, 4, 3);
  EXPECT_EQ(restarts.after({.rank = 1, .signal = SIGKILL, .step = 10}), 4);
  EXPECT_EQ(restarts.after({.rank = 2, .signal = SIGKILL, .step = 10, .together = true}), 4);
  EXPECT_EQ(restarts.after({.rank = 2, .signal = SIGKILL, .step = 12}), 4);
  EXPECT_FALSE(restarts.after({.rank = 2, .signal = SIGKILL, .step = 20}));
  EXPECT_TRUE(restarts.used_up());
}

TEST(Restarts, EndWhereABatchIsPoison) {
  Restarts restarts(1, 4, 10);
  EXPECT_EQ(restarts.after({.rank = 2, .step = 10}), 4);
  EXPECT_FALSE(restarts.after({.rank = 1, .step = 10}));  // shared out otherwise, it fails another rank
  EXPECT_THAT(restarts.why(), HasSubstr("on rank 1 and before that on rank 2"));
  Restarts same(1, 4, 10);
  EXPECT_EQ(same.after({.rank = 2, .step = 10}), 4);
  EXPECT_EQ(same.after({.rank = 2, .step = 10}), 3);
  EXPECT_FALSE(same.after({.rank = 2, .step = 10}));
  EXPECT_THAT(same.why(), HasSubstr("its batch, or the program"));
}

TEST(Restarts, LeaveOutAHostWhoseRanksFailWithoutProgress) {
  const auto failure = [](int rank, int host, int step) {
    return JobFailure{.rank = rank,
                      .step = step,
                      .host = host,
                      .host_name = fmt::format("node{}", host),
                      .ranks_of_host = 2};
  };
  Restarts restarts(2, 6, 10);
  EXPECT_EQ(restarts.after(failure(2, 1, 10)), 6);
  EXPECT_EQ(restarts.after(failure(3, 1, 10)), 4);
  EXPECT_EQ(restarts.left_out_host(), 1);
  EXPECT_EQ(restarts.after(failure(4, 2, 20)), 4);
  EXPECT_FALSE(restarts.left_out_host());
  Restarts few(5, 6, 10);
  EXPECT_EQ(few.after(failure(2, 1, 10)), 6);
  EXPECT_FALSE(few.after(failure(3, 1, 10)));
  EXPECT_THAT(few.why(), HasSubstr("or the host node1 of both, is at fault"));
}

}  // namespace
}  // namespace dear::launch
