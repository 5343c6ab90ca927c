// Rounding whose mean is right.

#include "dear/train/optim/stochastic_rounding.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace dear::optim {
namespace {

std::vector<at::BFloat16> rounded(const std::vector<float>& values, const RoundingKey& key = {.seed = 1},
                                  TensorId tensor = 0, std::int64_t offset = 0) {
  std::vector<at::BFloat16> result(values.size());
  round_stochastically(values.data(), result.data(), static_cast<std::int64_t>(values.size()), key, tensor,
                       offset);
  return result;
}

TEST(StochasticRounding, HasTheRightMeanAndTakesTheTwoNeighbours) {
  constexpr int kCount = 1 << 16;
  // A quarter of the way from 1 to the next number of bf16, 1 + 2^-7; and from -2 outwards.
  for (const auto& [value, inner, outer] :
       {std::tuple(1 + 0x1p-9F, 1.0F, 1 + 0x1p-7F), std::tuple(-2 - 0x1p-8F, -2.0F, -2 - 0x1p-6F)}) {
    int moved = 0;
    for (const at::BFloat16 one : rounded(std::vector<float>(kCount, value))) {
      const auto found = static_cast<float>(one);
      ASSERT_TRUE(found == inner || found == outer) << found;
      moved += found == outer ? 1 : 0;
    }
    EXPECT_NEAR(moved, kCount / 4, 500);  // more than four standard deviations
  }
}

TEST(StochasticRounding, LeavesWhatIsRoundAndWhatIsNotFinite) {
  const float infinite = std::numeric_limits<float>::infinity();
  const std::vector<float> values{0, -0.0F, 1.5F, -0x1p-126F, infinite, -infinite};
  const auto found = rounded(values);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(static_cast<float>(found[i]), values[i]);
  EXPECT_TRUE(std::isnan(static_cast<float>(rounded({std::nanf("")})[0])));
}

TEST(StochasticRounding, DoesNotDependOnWhereATensorIsCut) {
  std::vector<float> values(1001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const auto whole = rounded(values, {.seed = 7, .update = 3}, 5);
  for (const std::int64_t cut : {1, 2, 32, 999}) {
    const std::vector<float> rest(values.begin() + cut, values.end());
    const auto part = rounded(rest, {.seed = 7, .update = 3}, 5, cut);
    for (std::size_t i = 0; i < rest.size(); ++i)
      ASSERT_EQ(part[i].x, whole[i + static_cast<std::size_t>(cut)].x);
  }
}

TEST(StochasticRounding, IsAnotherInEachUpdateTensorAndSeed) {
  const std::vector<float> values(4096, 1 + 0x1p-8F);
  const auto differ = [&](const std::vector<at::BFloat16>& a, const std::vector<at::BFloat16>& b) {
    int count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += a[i].x != b[i].x ? 1 : 0;
    return count;
  };
  const auto first = rounded(values, {.seed = 1, .update = 0}, 0);
  EXPECT_NEAR(differ(first, rounded(values, {.seed = 2, .update = 0}, 0)), 2048, 200);
  EXPECT_NEAR(differ(first, rounded(values, {.seed = 1, .update = 1}, 0)), 2048, 200);
  EXPECT_NEAR(differ(first, rounded(values, {.seed = 1, .update = 0}, 1)), 2048, 200);
}

}  // namespace
}  // namespace dear::optim
