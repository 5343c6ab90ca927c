#include "dear/platform/cost/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::cost::ring_test {
namespace {

constexpr Link kLink{.alpha_seconds = 1, .beta_seconds_per_byte = 0.5};

// 4 ranks and 80 bytes: 3 rounds, each of 1 s start-up and a message of 20 bytes in 10 s.
TEST(RingCosts, WorkedOutByHand) {
  EXPECT_DOUBLE_EQ(ring_reduce_scatter_seconds(kLink, 4, 80), 33);
  EXPECT_DOUBLE_EQ(ring_all_gather_seconds(kLink, 4, 80), 33);
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(kLink, 4, 80), 66);
  EXPECT_DOUBLE_EQ(pairwise_all_to_all_seconds(kLink, 4, 80), 33);
  EXPECT_DOUBLE_EQ(pipelined_broadcast_seconds(kLink, 4, 80), 3 + 40);
  EXPECT_DOUBLE_EQ(ring_barrier_seconds(kLink, 4), 3);
}

TEST(RingCosts, AreNothingForOneRank) {
  EXPECT_EQ(ring_reduce_scatter_seconds(kLink, 1, 80), 0);
  EXPECT_EQ(ring_all_gather_seconds(kLink, 1, 80), 0);
  EXPECT_EQ(ring_all_reduce_seconds(kLink, 1, 80), 0);
  EXPECT_EQ(pairwise_all_to_all_seconds(kLink, 1, 80), 0);
  EXPECT_EQ(pipelined_broadcast_seconds(kLink, 1, 80), 0);
  EXPECT_EQ(ring_barrier_seconds(kLink, 1), 0);
}

TEST(RingCosts, OfNoBytesAreTheStartUp) {
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(kLink, 3, 0), 4);
  EXPECT_DOUBLE_EQ(pipelined_broadcast_seconds(kLink, 3, 0), 2);
}

TEST(RingCosts, RefuseWhatHasNoMeaning) {
  using ::testing::HasSubstr;
  EXPECT_THAT([] { ring_all_reduce_seconds(kLink, 0, 80); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("0 ranks")));
  EXPECT_THAT([] { pipelined_broadcast_seconds(kLink, 2, -1); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("-1 bytes")));
}

}  // namespace
}  // namespace dear::cost::ring_test
