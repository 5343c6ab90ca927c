#include "dear/methods/rounds/times.h"

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::rounds::times_test {
namespace {

// A step of 2 s, and 1 s to average every 100 bytes.
RoundJob job() {
  cost::CollectiveTimes times;
  times.ranks = 4;
  times.all_reduce = [](std::int64_t bytes) { return static_cast<double>(bytes) / 100; };
  return {.step_seconds = 2, .bytes = 1200, .times = times};
}

TEST(RoundTimes, AsAPencilSays) {
  const RoundTimes waits = times_of_rounds(job(), 4, Averaging::waits);
  EXPECT_DOUBLE_EQ(waits.seconds, 2 + 12.0 / 4);
  EXPECT_DOUBLE_EQ(waits.exposed_seconds, 3);
  EXPECT_DOUBLE_EQ(waits.sent_bytes, 2 * 0.75 * 1200 / 4);
  const RoundTimes overlaps = times_of_rounds(job(), 4, Averaging::overlaps);
  EXPECT_DOUBLE_EQ(overlaps.seconds, 3) << "12 s of the network for 8 s of steps";
  EXPECT_DOUBLE_EQ(overlaps.exposed_seconds, 1);
  EXPECT_DOUBLE_EQ(times_of_rounds(job(), 6, Averaging::overlaps).exposed_seconds, 0);
  EXPECT_THROW(times_of_rounds(job(), 0, Averaging::waits), ConfigError);
}

TEST(RoundTimes, TheLeastNumberOfStepsIsTheLeast) {
  for (const Averaging averaging : {Averaging::waits, Averaging::overlaps})
    for (const double seconds : {2.001, 2.1, 2.5, 3.0, 7.0, 14.0, 20.0}) {
      const std::int64_t steps = steps_for(job(), seconds, averaging);
      ASSERT_GE(steps, 1);
      EXPECT_LE(times_of_rounds(job(), steps, averaging).seconds, seconds + 1e-9);
      if (steps > 1) {
        EXPECT_GT(times_of_rounds(job(), steps - 1, averaging).seconds, seconds);
      }
    }
  EXPECT_EQ(steps_for(job(), 2, Averaging::waits), 0) << "no number hides an average that waits";
  EXPECT_EQ(steps_for(job(), 2, Averaging::overlaps), 6);
  EXPECT_EQ(steps_for(job(), 1.9, Averaging::overlaps), 0);
}

}  // namespace
}  // namespace dear::methods::rounds::times_test
