#include "dear/base/trace/intervals.h"

#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::trace::intervals_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Intervals, MergeWhatOverlapsOrTouchesAndDropWhatIsEmpty) {
  const Intervals set({{5, 6}, {0, 2}, {1, 3}, {3, 4}, {8, 8}, {9, 7}});
  EXPECT_THAT(set.parts(), ElementsAre(Interval{0, 4}, Interval{5, 6}));
  EXPECT_THAT(Intervals().parts(), IsEmpty());
}

TEST(Intervals, Unite) {
  const Intervals set = Intervals({{0, 1}, {4, 5}}).united_with(Intervals({{1, 2}, {3, 6}}));
  EXPECT_THAT(set.parts(), ElementsAre(Interval{0, 2}, Interval{3, 6}));
}

TEST(Intervals, WithoutCutsHolesAcrossParts) {
  const Intervals set({{0, 10}, {20, 30}, {40, 50}});
  EXPECT_THAT(set.without(Intervals({{2, 3}, {5, 6}, {8, 22}, {40, 50}})).parts(),
              ElementsAre(Interval{0, 2}, Interval{3, 5}, Interval{6, 8}, Interval{22, 30}));
  EXPECT_THAT(set.without(Intervals({{-5, 60}})).parts(), IsEmpty());
  EXPECT_EQ(set.without(Intervals({{10, 20}, {30, 40}})).parts(), set.parts());
}

TEST(Intervals, MeasureInsideOfAWindow) {
  const Intervals set({{0, 10}, {20, 30}, {40, 50}});
  EXPECT_EQ(set.length_within({-5, 60}), 30);
  EXPECT_EQ(set.length_within({5, 25}), 10);
  EXPECT_EQ(set.length_within({22, 23}), 1);
  EXPECT_EQ(set.length_within({10, 20}), 0);
  EXPECT_EQ(set.length_within({60, 70}), 0);
  EXPECT_EQ(set.length_within({25, 5}), 0);
}

// Against sets of whole numbers, one bit an instant.
TEST(Intervals, AgreeWithBitSets) {
  constexpr int kSize = 40;
  std::mt19937 random(7);
  const auto random_bits = [&](std::vector<Interval>& parts) {
    std::vector<bool> bits(kSize);
    for (int count = static_cast<int>(random() % 6); count > 0; --count) {
      const int begin = static_cast<int>(random() % kSize);
      const int end = begin + static_cast<int>(random() % static_cast<unsigned>(kSize - begin + 1));
      parts.push_back({static_cast<double>(begin), static_cast<double>(end)});
      for (int i = begin; i < end; ++i) bits[static_cast<std::size_t>(i)] = true;
    }
    return bits;
  };
  const auto expect_bits = [](const Intervals& set, const std::vector<bool>& bits) {
    for (int i = 0; i < kSize; ++i) {
      EXPECT_EQ(set.length_within({i + 0.0, i + 1.0}), bits[static_cast<std::size_t>(i)] ? 1 : 0) << i;
    }
    for (std::size_t p = 1; p < set.parts().size(); ++p)
      EXPECT_LT(set.parts()[p - 1].end, set.parts()[p].begin);
  };
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<Interval> a_parts, b_parts;
    const std::vector<bool> a = random_bits(a_parts);
    const std::vector<bool> b = random_bits(b_parts);
    std::vector<bool> either(kSize), only_a(kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      either[i] = a[i] || b[i];
      only_a[i] = a[i] && !b[i];
    }
    expect_bits(Intervals(a_parts), a);
    expect_bits(Intervals(a_parts).united_with(Intervals(b_parts)), either);
    expect_bits(Intervals(a_parts).without(Intervals(b_parts)), only_a);
  }
}

}  // namespace
}  // namespace dear::trace::intervals_test
