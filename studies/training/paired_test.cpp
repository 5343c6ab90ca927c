#include "studies/training/paired.h"

#include <cmath>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::studies::training::paired_test {
namespace {

using studies::Judged;

// Tasks differ by far more than methods do: pairs see a difference that means and deviations would not.
TEST(Paired, WhatTasksDifferByDoesNotCount) {
  const Paired difference = paired({0.2, 0.5, 0.9}, {0.21, 0.52, 0.93});
  EXPECT_NEAR(difference.mean, 0.02, 1e-12);
  EXPECT_NEAR(difference.half_width, 4.303 * 0.01 / std::sqrt(3), 1e-9);  // Student's t of 2 degrees
  EXPECT_EQ(difference.text(), "+0.020 ± 0.025");
  EXPECT_EQ(paired({0.2, 0.5, 0.9}, {0.21, 0.51, 0.91}).above(0), Judged::holds);
}

TEST(Paired, IsJudgedByItsWholeInterval) {
  const Paired gain{.mean = 0.03, .half_width = 0.01};
  EXPECT_EQ(gain.within(0.05), Judged::holds);
  EXPECT_EQ(gain.within(0.03), Judged::undecided);
  EXPECT_EQ(gain.within(0.01), Judged::fails);
  EXPECT_EQ(gain.above(0), Judged::holds);
  EXPECT_EQ(gain.above(0.035), Judged::undecided);
  EXPECT_EQ(gain.above(0.05), Judged::fails);
  EXPECT_EQ(gain.at_most(0.05), Judged::holds);
  EXPECT_EQ(gain.at_most(0.03), Judged::undecided);
  EXPECT_EQ(gain.at_most(0.01), Judged::fails);
  const Paired loss{.mean = -0.03, .half_width = 0.01};
  EXPECT_EQ(loss.within(0.01), Judged::fails);
  EXPECT_EQ(loss.above(0), Judged::fails);
}

TEST(Paired, OneTaskDecidesNothing) {
  const Paired one = paired({0.2}, {0.9});
  EXPECT_EQ(one.within(0.02), Judged::undecided);
  EXPECT_EQ(one.above(0), Judged::undecided);
  EXPECT_EQ(one.text(), "+0.700 (one task)");
  EXPECT_EQ(mean_text(0.5, 0, 1), "0.500 (one task)");
  EXPECT_EQ(mean_text(0.5, 0.25, 2, 4), "0.5000 ± 0.2500");
  EXPECT_THROW(paired({0.2}, {}), ConfigError);
  EXPECT_THROW(paired({}, {}), ConfigError);
}

}  // namespace
}  // namespace dear::studies::training::paired_test
