#include "dear/base/vocabulary/deadline.h"

#include <limits>
#include <thread>

#include <gtest/gtest.h>

namespace dear::deadline_test {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, InThePastIsExpiredWithNothingRemaining) {
  const Deadline deadline(SteadyClock::now() - 1s);
  EXPECT_TRUE(deadline.expired());
  EXPECT_EQ(deadline.remaining(), 0ns);
  EXPECT_TRUE(Deadline::after(-1s).expired());
}

TEST(Deadline, InTheFutureRemains) {
  const SteadyTime before = SteadyClock::now();
  const Deadline deadline = Deadline::after(3600s);
  EXPECT_FALSE(deadline.expired());
  EXPECT_GT(deadline.remaining(), 0s);
  EXPECT_LE(deadline.remaining(), 3600s);
  EXPECT_GE(deadline.at(), before + 3600s);
}

TEST(Deadline, BeyondWhatTheClockCanCountIsFarAway) {
  for (const double seconds : {1e12, 1e300, std::numeric_limits<double>::infinity()}) {
    const Deadline deadline = Deadline::after(std::chrono::duration<double>(seconds));
    EXPECT_FALSE(deadline.expired()) << seconds;
    EXPECT_GT(deadline.remaining(), 24h * 365) << seconds;
  }
}

TEST(RecentTime, FollowsTheSameClock) {
  const SteadyTime before = SteadyClock::now();
  EXPECT_LE(recent_time(), SteadyClock::now());
  const Deadline patience = Deadline::after(60s);
  while (recent_time() < before && !patience.expired()) std::this_thread::yield();
  EXPECT_GE(recent_time(), before);
}

TEST(SecondsOf, CountsFromTheEpochOfTheClock) {
  EXPECT_EQ(seconds_of(SteadyTime(1500ms)), 1.5);
  const double first = now_seconds();
  EXPECT_LE(first, now_seconds());
}

}  // namespace
}  // namespace dear::deadline_test
