#include "dear/schedule/codec/sketch_shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "dear/schedule/codec/index.h"
#include "dear/schedule/codec/sketch.h"

namespace dear::codec::sketch_shape_test {
namespace {

constexpr std::int64_t kElements = 1 << 24;

double bits_for_each_element(const SketchShape& shape) {
  return (64.0 * static_cast<double>(shape.index_words()) + 32.0 * static_cast<double>(shape.values())) /
         static_cast<double>(shape.elements);
}

// 1 + 32 x room x density, the formula for a bitmap.
TEST(SketchShape, HasTheBytesOfTheFormula) {
  for (const double density : {0.01, 0.05, 0.2}) {
    const SketchShape shape =
        shape_for({.index = SketchSpec::Index::bitmap}, kElements, 4, density * kElements, 1);
    EXPECT_NEAR(bits_for_each_element(shape), 1 + 32 * 1.3 * density, 0.02);
  }
}

TEST(SketchShape, HasABloomFilterWhereThatIsAFifthSmaller) {
  const auto shape_at = [](double density, SketchSpec::Index index) {
    return shape_for({.index = index}, kElements, 4, density * kElements, 1);
  };
  using Index = SketchSpec::Index;
  EXPECT_GT(shape_at(0.01, Index::automatic).bloom_lines, 0);
  EXPECT_EQ(shape_at(0.05, Index::automatic).bloom_lines, 0);
  EXPECT_EQ(shape_at(0.01, Index::bitmap).bloom_lines, 0);
  EXPECT_GT(shape_at(0.05, Index::bloom).bloom_lines, 0);
  // Beside the optimum of filters whose lines are all alike, 1.44 log2(1 / rate) bits a key.
  const double rate = 2.081 * 0.01 / (32 * 1.3);
  const double optimum = 32 * 1.3 * (0.01 + rate) + 0.01 * 1.44 * -std::log2(rate);
  EXPECT_NEAR(bits_for_each_element(shape_at(0.01, Index::bloom)), optimum, 0.1 * optimum);
  // Which of both is smaller turns at a density of about 0.07.
  EXPECT_LT(bits_for_each_element(shape_at(0.05, Index::bloom)),
            bits_for_each_element(shape_at(0.05, Index::bitmap)));
  EXPECT_GT(bits_for_each_element(shape_at(0.09, Index::bloom)),
            bits_for_each_element(shape_at(0.09, Index::bitmap)));
}

TEST(SketchShape, GivesSmallGroupsMoreRoom) {
  EXPECT_EQ(room_for(1.3, 1000), 1.3);
  EXPECT_EQ(room_for(1.3, 500), 1.5);
  EXPECT_EQ(room_for(1.3, 50), 2);
  EXPECT_EQ(room_for(2.5, 50), 2.5);
}

TEST(SketchShape, PaysForSparseGradients) {
  EXPECT_TRUE(pays({}, kElements, 4, 0.05));
  EXPECT_FALSE(pays({}, kElements, 4, 0.5));                   // above the most it may be
  EXPECT_FALSE(pays({.most_density = 1}, kElements, 4, 0.9));  // more bytes
  EXPECT_FALSE(pays({.exact = true, .most_density = 1}, kElements, 4, 0.6));
  EXPECT_TRUE(pays({.exact = true, .most_density = 1}, kElements, 4, 0.4));
  EXPECT_FALSE(pays({}, 0, 4, 0.05));
  EXPECT_FALSE(pays({}, kElements, 1, 0.05));
  EXPECT_EQ(dense_bytes_sent(1000, 2), 4000);
}

TEST(SketchShape, ChoosesTheBlockOfTheGradient) {
  std::mt19937_64 generator(1);
  for (const std::int64_t block : {1, 16, 64}) {
    std::vector<float> values(1 << 22);
    for (std::size_t begin = 0; begin < values.size(); begin += static_cast<std::size_t>(block)) {
      if (generator() % 4 != 0) continue;
      for (std::size_t i = 0; i < static_cast<std::size_t>(block); ++i) values[begin + i] = 1;
    }
    const auto keys = count_keys(values);
    EXPECT_EQ(choose_block({}, 1 << 22, 2, keys), block);
  }
  EXPECT_EQ(count_keys(std::vector<float>{0, 0, 0, 0, 1, -0.0F}), (std::array<std::int64_t, 4>{1, 1, 1, 1}));
  EXPECT_EQ(count_keys({}), (std::array<std::int64_t, 4>{0, 0, 0, 0}));
}

// Whatever of the buffer is dense, owners and groups get their shares.
TEST(SketchShape, BalancesOwnersWhateverIsDense) {
  std::vector<float> values(1 << 20);
  std::fill_n(values.begin(), 200'000, 1.0F);
  Sketch sketch(shape_for({}, 1 << 20, 4, 200'000, 1));
  EXPECT_EQ(sketch.shape().groups, 2);
  std::vector<std::uint64_t> index(static_cast<std::size_t>(sketch.shape().index_words()));
  std::vector<float> rows(static_cast<std::size_t>(sketch.shape().values()));
  EXPECT_EQ(sketch.encode<float>(values, 0, 0, index, rows).keys, 200'000);
  const Reading reading = sketch.read(index);
  EXPECT_TRUE(reading.usable());
  for (int owner = 0; owner < 4; ++owner) {
    EXPECT_NEAR(static_cast<double>(sketch.keys_of(owner)), 50'000, 1000);
    std::vector<float> sums(static_cast<std::size_t>(sketch.keys_of(owner)));
    const auto part = static_cast<std::size_t>(sketch.shape().values_per_owner());
    EXPECT_EQ(
        sketch.peel<float>(owner, std::span(rows).subspan(static_cast<std::size_t>(owner) * part, part), sums)
            .unpeeled,
        0);
  }
}

}  // namespace
}  // namespace dear::codec::sketch_shape_test
