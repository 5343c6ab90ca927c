#include "dear/methods/kfac/costs.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::kfac::costs_test {
namespace {

TEST(InverseCost, FormsGiveTheirFormulas) {
  EXPECT_DOUBLE_EQ(InverseCost::cubic(1, 2).seconds(3), 55);
  EXPECT_DOUBLE_EQ(InverseCost::exponential(2, 0.5).seconds(4), 2 * std::exp(2.0));
  const InverseCost measured = InverseCost::measured({{10, 1.0}, {20, 3.0}, {40, 10.0}});
  EXPECT_DOUBLE_EQ(measured.seconds(5), 1);
  EXPECT_DOUBLE_EQ(measured.seconds(15), 2);
  EXPECT_DOUBLE_EQ(measured.seconds(40), 10);
  EXPECT_DOUBLE_EQ(measured.seconds(80), 80);
  for (const InverseCost& cost : {InverseCost::cubic(1, 2), InverseCost::exponential(2, 0.5), measured})
    EXPECT_DOUBLE_EQ(cost.times(3).seconds(15), 3 * cost.seconds(15));
}

TEST(InverseCost, IsFittedToWhatAFormulaGave) {
  std::vector<std::pair<std::int64_t, double>> points;
  for (const std::int64_t dimension : {64, 128, 512, 1024, 4096})
    points.emplace_back(dimension, InverseCost::cubic(1e-4, 3e-11).seconds(dimension));
  EXPECT_NEAR(fit_cubic(points).seconds(2048), 1e-4 + 3e-11 * std::pow(2048, 3), 1e-9);
  std::vector<std::pair<std::int64_t, double>> sums;
  for (const std::int64_t elements : {1000, 10'000, 1'000'000})
    sums.emplace_back(elements, 1e-3 + 1e-9 * static_cast<double>(elements));
  const LinearCost linear = fit_linear(sums);
  EXPECT_NEAR(linear.start_seconds, 1e-3, 1e-9);
  EXPECT_NEAR(linear.seconds_per_element, 1e-9, 1e-15);
}

TEST(InverseCost, NeitherConstantBecomesNegative) {
  EXPECT_GE(fit_linear({{1, 5.0}, {2, 4.0}, {3, 3.0}}).seconds_per_element, 0);
  EXPECT_GE(fit_linear({{10, 1.0}, {20, 4.0}, {30, 9.0}}).start_seconds, 0);
}

TEST(InverseCost, RefusesWhatItCannotBeFittedTo) {
  EXPECT_THROW(fit_cubic({{64, 1.0}}), ConfigError);
  EXPECT_THROW(fit_cubic({{64, 1.0}, {64, 2.0}}), ConfigError);
  EXPECT_THROW(fit_cubic({{64, 1.0}, {128, 0.0}}), ConfigError);
  EXPECT_THROW(fit_linear({{64, 1.0}, {128, NAN}}), ConfigError);
  EXPECT_THROW(InverseCost::measured({}), ConfigError);
  EXPECT_THROW(InverseCost::measured({{20, 1.0}, {10, 2.0}}), ConfigError);
}

}  // namespace
}  // namespace dear::methods::kfac::costs_test
