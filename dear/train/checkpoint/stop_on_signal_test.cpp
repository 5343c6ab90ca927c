#include "dear/train/checkpoint/stop_on_signal.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
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

// Steps of a millisecond, then of a second: the time counts, and not the calls.
TEST(StopOnSignal, DoesNotCountOnTheSpeedOfEarlierSteps) {
  std::vector<int> calls(2);
  run_all(2, [&](int rank, Group group) {
    StopOnSignal stop(group, {.interval = std::chrono::milliseconds(20)});
    for (int call = 0; call < 200; ++call) {
      EXPECT_FALSE(stop.requested());
      group.barrier().wait();
    }
    if (rank == 1) stop.request();
    int& slow = calls[static_cast<std::size_t>(rank)];
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ++slow;
    } while (!stop.requested() && slow < 20);
    EXPECT_TRUE(stop.comes());
  });
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_LT(calls[0], 20);  // however many steps were taken in the time before
}

TEST(StopOnSignal, LooksForAFile) {
  const std::string file = ::testing::TempDir() + "stop-now";
  std::filesystem::remove(file);
  std::vector<int> calls(3);
  run_all(3, [&](int rank, Group group) {
    StopOnSignal stop(group, {.interval = std::chrono::milliseconds(1), .file = rank == 2 ? file : ""});
    EXPECT_FALSE(stop.requested());
    group.barrier().wait();
    if (rank == 0) std::ofstream(file) << "";
    calls[static_cast<std::size_t>(rank)] = calls_until_stop(stop, 100'000'000);
    EXPECT_EQ(stop.signal(), SIGTERM);
  });
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_EQ(calls[0], calls[2]);
}

// One that ends its loop without a signal keeps nobody waiting.
TEST(StopOnSignal, MayEndOnOneRankFirst) {
  run_all(2, [&](int rank, Group group) {
    {
      StopOnSignal stop(group, {.interval = std::chrono::milliseconds(10)});
      EXPECT_FALSE(stop.requested());
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_FALSE(stop.requested());
    }
    group.barrier().wait();
  });
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
