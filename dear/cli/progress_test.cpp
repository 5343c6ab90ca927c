#include "dear/cli/progress.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::cli::progress_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::int64_t count(const std::string& text, char c) { return std::count(text.begin(), text.end(), c); }

TEST(Progress, ElsewhereALineForEachTenthAndTheFirstPowersOfTen) {
  std::ostringstream out;
  Progress progress(out, {.steps = 200, .characters_per_step = 512, .terminal = false});
  for (int step = 1; step <= 200; ++step) {
    progress.update("dear", step, 2.5, 0.5 * step);
  }
  EXPECT_EQ(count(out.str(), '\n'), 12);  // 20, 40, ...; 1 and 10
  EXPECT_THAT(out.str(), HasSubstr("dear: step 20 of 200, loss 2.500, 1,024 characters/s, 1:30 left\n"));
  EXPECT_THAT(out.str(), EndsWith("dear: step 200 of 200, loss 2.500, 1,024 characters/s, took 1:40\n"));
  EXPECT_THAT(out.str(), Not(HasSubstr("\r")));
}

TEST(Progress, ALongRunIsHeardOfEarly) {
  std::ostringstream out;
  Progress progress(out, {.steps = 1'000'000, .characters_per_step = 512, .terminal = false});
  for (int step = 1; step <= 50'000; ++step) {
    progress.update("dear", step, 2.5, 0.5 * step);
  }
  EXPECT_EQ(count(out.str(), '\n'), 5);
  EXPECT_THAT(out.str(), HasSubstr("dear: step 100 of 1000000, loss 2.500"));
}

TEST(Progress, WhatTrainsMayChangeAndSpeedMayBeLeftOut) {
  std::ostringstream out;
  Progress progress(out, {.steps = 2, .characters_per_step = 0, .terminal = false});
  progress.update("serial", 1, 1, 1);
  progress.update("dear", 2, 0.5, 2);
  EXPECT_EQ(out.str(),
            "serial: step 1 of 2, loss 1.000, 1 s left\ndear: step 2 of 2, loss 0.500, took 2 s\n");
}

TEST(Progress, FewStepsHaveALineEach) {
  std::ostringstream out;
  Progress progress(out, {.steps = 3, .characters_per_step = 1, .terminal = false});
  for (int step = 1; step <= 3; ++step) {
    progress.update("dear", step, 1, step);
  }
  EXPECT_EQ(count(out.str(), '\n'), 3);
}

TEST(Progress, OnATerminalOneLineDrawnAnewFiveTimesASecondAtMost) {
  std::ostringstream out;
  Progress progress(out, {.steps = 1000, .characters_per_step = 100, .terminal = true});
  for (int step = 1; step <= 1000; ++step) {
    progress.update("dear", step, 3.25, 0.01 * step);
  }
  EXPECT_LE(count(out.str(), '\r'), 51);
  EXPECT_GE(count(out.str(), '\r'), 45);
  EXPECT_EQ(count(out.str(), '\n'), 1);
  EXPECT_THAT(out.str(),
              EndsWith("\rdear [####################] 1000/1000 loss 3.250, 10,000 characters/s, took 10 s"
                       "\x1b[K\n"));
}

TEST(Progress, TheFirstStepShowsAtOnceAndLongTimesHaveHours) {
  std::ostringstream out;
  Progress progress(out, {.steps = 1000, .characters_per_step = 1, .terminal = true});
  progress.update("dear", 1, -std::numeric_limits<double>::quiet_NaN(), 10);
  EXPECT_THAT(out.str(),
              HasSubstr("dear [....................] 1/1000 loss nan, 0 characters/s, 2:46:30 left"));
}

}  // namespace
}  // namespace dear::cli::progress_test
