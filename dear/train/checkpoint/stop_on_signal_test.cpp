#include "dear/train/checkpoint/stop_on_signal.h"

#include <csignal>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::stop_on_signal_test {
namespace {

using train::testing::run_all;

// The calls until one is true, at most `most`.
int calls_until_stop(StopOnSignal& stop, int most) {
  int calls = 1;
  while (calls < most && !stop.requested()) ++calls;
  return calls;
}

TEST(StopOnSignal, IsTheSameCallOnEveryRank) {
  std::vector<int> calls(3);
  run_all(3, [&](int rank, Group group) {
    StopOnSignal stop(group, {.interval = std::chrono::microseconds(100)});
    EXPECT_FALSE(stop.requested());
    if (rank == 1) stop.request();
    calls[static_cast<std::size_t>(rank)] = calls_until_stop(stop, 100'000'000);
    EXPECT_TRUE(stop.requested());
  });
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_EQ(calls[0], calls[2]);
  EXPECT_LT(calls[0], 100'000'000);
}

TEST(StopOnSignal, TakesTheSignalWhileItLives) {
  run_all(1, [](int, Group group) {
    struct sigaction before{}, after{};
    ::sigaction(SIGUSR1, nullptr, &before);
    {
      StopOnSignal stop(group, {.signal = SIGUSR1, .interval = {}});
      EXPECT_FALSE(stop.requested());
      std::raise(SIGUSR1);
      EXPECT_TRUE(stop.requested());
      EXPECT_THROW(StopOnSignal(group, {.signal = SIGUSR2}), ConfigError);
    }
    ::sigaction(SIGUSR1, nullptr, &after);
    EXPECT_EQ(before.sa_handler, after.sa_handler);
    EXPECT_FALSE(StopOnSignal(group, {.signal = SIGUSR1}).requested());
  });
}

TEST(StopOnSignal, SaysWhichOfTwoSignalsCame) {
  run_all(1, [](int, Group group) {
    StopOnSignal stop(group, {.signal = SIGUSR1, .also = SIGUSR2, .interval = {}});
    EXPECT_FALSE(stop.requested());
    EXPECT_EQ(stop.signal(), 0);
    std::raise(SIGUSR2);
    EXPECT_TRUE(stop.requested());
    EXPECT_EQ(stop.signal(), SIGUSR2);
  });
}

}  // namespace
}  // namespace dear::stop_on_signal_test
