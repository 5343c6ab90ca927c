#include "dear/predict/tune/candidates.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::tune::candidates_test {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kClose = 1e-12;

// Tells what a grouping by size makes of it: how often the threshold fits into eight.
std::string buckets(const std::vector<double>& values) {
  return std::to_string(static_cast<int>(std::ceil(8 / values[0])));
}

TEST(Candidates, OneForEachKeyInTheMiddleOfItsRange) {
  // 1, 2, 4, 8, 16, 32 and 64: the last four hold everything.
  const Candidates all = candidates_on_grid({{.name = "size", .low = 1, .high = 64}}, buckets, {.points = 7});
  ASSERT_EQ(all.size(), 4U);
  EXPECT_THAT(all[0].position, ElementsAre(DoubleNear(0, kClose)));
  EXPECT_THAT(all[1].position, ElementsAre(DoubleNear(1.0 / 6, kClose)));
  EXPECT_THAT(all[2].position, ElementsAre(DoubleNear(2.0 / 6, kClose)));
  EXPECT_THAT(all[3].position, ElementsAre(DoubleNear(4.5 / 6, kClose)));
  EXPECT_THAT(all[2].values, ElementsAre(DoubleNear(4, kClose)));
  EXPECT_THAT(all[3].values, ElementsAre(DoubleNear(16, 1e-9)));
  EXPECT_EQ(all[0].name, "1");
}

TEST(Candidates, EndsAreExactAndAScaleMayBeLinear) {
  const auto itself = [](const std::vector<double>& values) { return std::to_string(values[0]); };
  const Candidates linear = candidates_on_grid(
      {{.name = "x", .low = 0.1, .high = 0.7, .scale = Scale::linear}}, itself, {.points = 4});
  ASSERT_EQ(linear.size(), 4U);
  EXPECT_EQ(linear.front().values[0], 0.1);
  EXPECT_EQ(linear.back().values[0], 0.7);
  EXPECT_NEAR(linear[1].values[0], 0.3, kClose);
  const Candidates one = candidates_on_grid({{.name = "x", .low = 4, .high = 9}}, itself, {.points = 1});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_NEAR(one[0].values[0], 6, kClose);
}

TEST(Candidates, SeveralDimensionsLastInnermost) {
  const Candidates all = candidates_on_grid(
      {{.name = "x", .low = 1, .high = 4}, {.name = "y", .low = 0, .high = 1, .scale = Scale::linear}},
      [](const std::vector<double>& values) { return std::to_string(values[0]) + std::to_string(values[1]); },
      {.points = 3, .name = [](const std::vector<double>& values) {
         return std::to_string(static_cast<int>(values[0])) + "/" + std::to_string(values[1]).substr(0, 3);
       }});
  ASSERT_EQ(all.size(), 9U);
  EXPECT_EQ(all[1].name, "1/0.5");
  EXPECT_EQ(all[8].name, "4/1.0");
  EXPECT_THAT(all[5].position, ElementsAre(DoubleNear(0.5, kClose), DoubleNear(1, kClose)));
}

TEST(Candidates, OneThatStandsApartHasACoordinateOfItsOwn) {
  Candidates all = candidates_on_grid({{.name = "size", .low = 1, .high = 64}}, buckets, {.points = 7});
  add_apart(all, "planned", 2);
  EXPECT_NO_THROW(validate(all));
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[4].name, "planned");
  EXPECT_TRUE(all[4].values.empty());
  EXPECT_THAT(all[4].position, ElementsAre(all[2].position[0], 1.0));
  EXPECT_EQ(all[0].position[1], 0);
  EXPECT_DOUBLE_EQ(distance(all[2], all[4]), 1);
  EXPECT_THROW(add_apart(all, "nothing", 9), ConfigError);
}

std::string refusal(const std::vector<Dimension>& dimensions, std::size_t points = 3) {
  try {
    candidates_on_grid(dimensions, buckets, {.points = points});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Candidates, Refusals) {
  EXPECT_THAT(refusal({}), HasSubstr("no dimension"));
  EXPECT_THAT(refusal({{.name = "size", .low = 2, .high = 1}}), HasSubstr("'size' cannot go from 2 to 1"));
  EXPECT_THAT(refusal({{.name = "size", .low = 0, .high = 1}}), HasSubstr("logarithmic"));
  EXPECT_THAT(refusal({{.name = "size", .low = 1, .high = INFINITY}}), HasSubstr("finite"));
  EXPECT_THAT(refusal({{.name = "size", .low = 1, .high = 2}}, 0), HasSubstr("no points"));
  EXPECT_THAT(refusal({{.name = "x", .low = 1, .high = 2}, {.name = "y", .low = 1, .high = 2}}, 2000),
              HasSubstr("too many"));
  EXPECT_THROW(validate({}), ConfigError);
  EXPECT_THROW(validate({{.name = "a", .position = {}}}), ConfigError);
  EXPECT_THROW(validate({{.name = "a", .position = {1.5}}}), ConfigError);
  EXPECT_THROW(validate({{.name = "a", .position = {1}}, {.name = "b", .position = {1, 0}}}), ConfigError);
}

}  // namespace
}  // namespace dear::tune::candidates_test
