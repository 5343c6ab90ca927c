// Sums whose bits do not depend on the order and the grouping of their terms.

#include "dear/train/optim/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

TEST(ExactSum, OfOneTermIsTheTerm) {
  for (const double term : {0.0, 1.0, 0.1, 3e38, 1e76, 0x1p-200, 0x1.fffffffffffffp+255}) {
    ExactSum sum;
    sum.add(term);
    EXPECT_EQ(sum.value(), term);
  }
}

TEST(ExactSum, KeepsSmallTermsBesideLargeOnes) {
  ExactSum sum;
  sum.add(0x1p100);
  for (int i = 0; i < 1024; ++i) sum.add(0x1p40);
  EXPECT_EQ(sum.value(), 0x1p100 + 0x1p50);
}

TEST(ExactSum, HasTheSameBitsInAnyOrderAndGrouping) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> mantissa(0, 1);
  std::uniform_int_distribution<int> exponent(-90, 90), cut(1, 40);
  std::vector<double> terms;
  for (int i = 0; i < 500; ++i) terms.push_back(std::ldexp(mantissa(random), exponent(random)));
  ExactSum expected;
  for (const double term : terms) expected.add(term);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(terms.begin(), terms.end(), random);
    ExactSum all;
    for (std::size_t i = 0; i < terms.size();) {
      ExactSum part;
      for (int n = cut(random); n > 0 && i < terms.size(); --n) part.add(terms[i++]);
      all.add(part);
    }
    EXPECT_EQ(all.value(), expected.value());
  }
  EXPECT_NEAR(expected.value() / std::accumulate(terms.begin(), terms.end(), 0.0), 1, 1e-12);
}

TEST(ExactSum, OfWhatIsNotFiniteIsNotFinite) {
  ExactSum infinite;
  infinite.add(1);
  infinite.add(std::numeric_limits<double>::infinity());
  EXPECT_EQ(infinite.value(), std::numeric_limits<double>::infinity());
  ExactSum not_a_number;
  not_a_number.add(std::numeric_limits<double>::quiet_NaN());
  not_a_number.add(infinite);
  EXPECT_TRUE(std::isnan(not_a_number.value()));
}

TEST(SumOfSquares, OfPartsIsThatOfTheWholeForEveryType) {
  torch::manual_seed(3);
  for (const at::ScalarType type : {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16}) {
    const torch::Tensor values = torch::randn({1000 + 13}).to(type);
    const double whole = sum_of_squares(values).value();
    EXPECT_NEAR(whole, values.to(torch::kFloat64).square().sum().item<double>(), 1e-9 * whole);
    for (const std::int64_t border : {32, 96, 512, 992}) {
      ExactSum sum = sum_of_squares(values.narrow(0, border, values.numel() - border));
      sum.add(sum_of_squares(values.narrow(0, 0, border)));
      EXPECT_EQ(sum.value(), whole) << c10::toString(type) << " cut at " << border;
    }
  }
  EXPECT_THROW(static_cast<void>(sum_of_squares(torch::ones({3}, torch::kInt32))), ConfigError);
}

}  // namespace
}  // namespace dear
