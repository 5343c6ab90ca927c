#include "dear/comm/mpi/ranking.h"

#include <gtest/gtest.h>

namespace dear::backends::judgement_test {
namespace {

// Milliseconds of 12 MiB each way between two hosts at 1 Gb/s.
const Looks kSteady = {108, 109, 107, 112, 110, 108, 111};
const Looks kNowAndThen = {107, 220, 104, 219, 103, 221, 218};  // full in one direction at a time, or in both
const Looks kSlow = {221, 219, 224, 222, 220, 223, 219};
const Looks kHalf = {54, 55, 54, 56, 55, 54, 56};

TEST(Judgement, TakesTheUsualTimeAndNotTheLuckyOne) {
  EXPECT_EQ(usual_seconds({5}), 5);
  EXPECT_EQ(usual_seconds({4, 1, 3, 2}), 3);
  EXPECT_EQ(usual_seconds({1, 1, 1, 1, 9}), 1);
  EXPECT_EQ(usual_seconds(kNowAndThen), 219);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2);
}

TEST(Judgement, IsClearOnlyInMostRoundsAndByATwentieth) {
  EXPECT_TRUE(clearly_faster(kHalf, kSteady));
  EXPECT_FALSE(clearly_faster(kSteady, kHalf));
  EXPECT_FALSE(clearly_faster(kNowAndThen, kSteady));
  EXPECT_FALSE(clearly_faster({10, 10, 10, 10}, {10.4, 10.4, 10.4, 10.4}));
  EXPECT_TRUE(clearly_faster({10, 10, 10, 10}, {10.6, 10.6, 10.6, 10.6}));
  // The other one met a load in half of the rounds.
  EXPECT_FALSE(clearly_faster({10, 10, 10, 10}, {9, 30, 9, 30}));
  // A load on both in one round says nothing.
  EXPECT_TRUE(clearly_faster({10, 10, 90, 10}, {12, 12, 99, 12}));
  EXPECT_FALSE(clearly_faster({}, kSteady));
  EXPECT_FALSE(clearly_faster(kSteady, {}));
}

TEST(Judgement, GivesUpWhatWasNeverNear) {
  EXPECT_TRUE(is_hopeless({20, 19}, {10, 10}));
  EXPECT_FALSE(is_hopeless({20}, {10}));
  EXPECT_FALSE(is_hopeless({20, 14}, {10, 10}));  // one look may have met a load
}

TEST(Judgement, TheFirstStaysUnlessALaterOneIsClearlyFaster) {
  EXPECT_EQ(rank_choices({kSteady, kNowAndThen, kSlow}).best, 0U);
  EXPECT_EQ(rank_choices({kSteady, kNowAndThen, kSlow}).second, 1U);
  EXPECT_EQ(rank_choices({kSlow, kSteady, kNowAndThen}).best, 1U);
  EXPECT_EQ(rank_choices({kSlow, kSteady, kHalf}).best, 2U);
  EXPECT_EQ(rank_choices({kSlow, kSteady, kHalf}).second, 1U);
  EXPECT_EQ(rank_choices({kSlow}).best, 0U);
  EXPECT_FALSE(rank_choices({kSlow}).second);
  // One that was given up after two rounds.
  EXPECT_EQ(rank_choices({{30, 31}, kHalf}).best, 0U);
  EXPECT_EQ(rank_choices({{221, 219}, kSteady}).best, 1U);
}

TEST(Judgement, WhatIsAQuarterSlowerThanItWasFalls) {
  EXPECT_EQ(standing(110, kSteady, kSlow), Standing::holds);
  EXPECT_EQ(standing(110, kSteady, {}), Standing::holds);
  EXPECT_EQ(standing(85, kSteady, kSlow), Standing::slower);
  EXPECT_EQ(standing(90, kSteady, kSlow), Standing::holds);
  EXPECT_EQ(standing(110, {108, 300, 109}, {}), Standing::holds);  // one look met a load
  EXPECT_EQ(standing(110, {300, 280, 109}, {}), Standing::slower);
}

// The best of a noisy measurement, whose own time is as it was.
TEST(Judgement, WhatItsSecondOvertakesFalls) {
  EXPECT_EQ(standing(220, kSlow, kSteady), Standing::overtaken);
  EXPECT_EQ(standing(110, kSteady, kHalf), Standing::overtaken);
}

TEST(Judgement, ATimeMeasuredUnderALoadIsMended) {
  EXPECT_EQ(standing(160, kSteady, kSlow), Standing::faster);
  EXPECT_EQ(standing(140, kSteady, kSlow), Standing::holds);
}

}  // namespace
}  // namespace dear::backends::judgement_test
