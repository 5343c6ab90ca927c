#include "dear/tools/options/progress.h"

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

TEST(Progress, ARunThatGoesOnIsAsFastAsItsOwnSteps) {
  std::ostringstream out;
  Progress progress(out, {.steps = 200, .characters_per_step = 512, .terminal = false});
  for (int step = 101; step <= 200; ++step) progress.update("dear", step, 2.5, 0.5 * (step - 100));
  EXPECT_THAT(out.str(), HasSubstr("dear: step 120 of 200, loss 2.500, 1,024 characters/s, 40 s left\n"));
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

TEST(StudyProgress, SaysWhatIsDoneAndLeftOfEachPart) {
  std::ostringstream out;
  double now = 100;
  StudyProgress progress(out, false, [&] { return now; });
  for (std::size_t done = 1; done <= 20; ++done) {
    now += 0.5;
    progress.update("codecs", done, 20);
  }
  EXPECT_EQ(count(out.str(), '\n'), 10);
  EXPECT_THAT(out.str(), HasSubstr("codecs: 4 of 20, 8 s left\n"));
  EXPECT_THAT(out.str(), EndsWith("codecs: 20 of 20, took 10 s\n"));
  out.str("");
  now += 61;
  progress.update("training", 2, 4000);
  progress.update("training", 1, 4000);  // another thread, late
  now += 1;
  progress.update("training", 3, 4000);
  now += 58;
  progress.update("training", 4000, 4000);
  EXPECT_EQ(out.str(), "training: 2 of 4000, 33:52:19 left\ntraining: 4000 of 4000, took 2:00\n");
}

TEST(StudyProgress, OnATerminalOneLineForEachPart) {
  std::ostringstream out;
  double now = 0;
  StudyProgress progress(out, true, [&] { return now; });
  for (std::size_t done = 1; done <= 100; ++done) {
    now += 0.01;
    progress.update("training", done, 100);
  }
  EXPECT_EQ(count(out.str(), '\n'), 1);
  EXPECT_EQ(count(out.str(), '\r'), 5);
  EXPECT_THAT(out.str(), HasSubstr("\rtraining: 20 of 100, 1 s left\x1b[K"));
  EXPECT_THAT(out.str(), EndsWith("\rtraining: 100 of 100, took 1 s\x1b[K\n"));
}

}  // namespace
}  // namespace dear::cli::progress_test
