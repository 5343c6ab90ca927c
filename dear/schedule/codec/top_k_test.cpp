#include "dear/schedule/codec/top_k.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/testing/payloads.h"

namespace dear::codec::top_k_test {
namespace {

using codec::testing::any_bits;
using codec::testing::bits_of;
using codec::testing::encoded;
using codec::testing::whole;
using codec::testing::whole_numbers;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// All indices in the order of top-k, by its definition.
std::vector<std::uint32_t> ordered(const std::vector<float>& values) {
  const std::vector<std::uint32_t> bits = bits_of(values);
  std::vector<std::uint32_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0U);
  std::stable_sort(indices.begin(), indices.end(),
                   [&](auto a, auto b) { return order_of(bits[a]) > order_of(bits[b]); });
  return indices;
}

void expect_largest(const std::vector<float>& values, const std::vector<std::size_t>& counts) {
  const std::vector<std::uint32_t> indices = ordered(values);
  for (const std::size_t count : counts) {
    std::vector<std::uint32_t> expected(indices.begin(),
                                        indices.begin() + static_cast<std::ptrdiff_t>(count));
    std::sort(expected.begin(), expected.end());
    for (const Kernels* kernels : {&codec::kernels(), &baseline_kernels()}) {
      std::vector<Coordinate> chosen(count);
      Selection(*kernels).largest(values, chosen);
      for (std::size_t i = 0; i < count; ++i) {
        const auto& [index, value] = chosen[i];
        ASSERT_EQ(index, expected[i]) << count << " of " << values.size();
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(values[index]));
      }
    }
  }
}

TEST(Order, IsThatOfMagnitudesWhichNanLeads) {
  const auto order = [](float value) { return order_of(std::bit_cast<std::uint32_t>(value)); };
  EXPECT_EQ(order(0.0F), order(-0.0F));
  EXPECT_EQ(order(-2), order(2));
  EXPECT_LT(order(0), order(std::numeric_limits<float>::denorm_min()));
  EXPECT_LT(order(1), order(-1.5F));
  EXPECT_LT(order(std::numeric_limits<float>::max()), order(-kInfinity));
  EXPECT_LT(order(kInfinity), order(kNan));
  EXPECT_EQ(order(kNan), order(std::bit_cast<float>(0xff800001U)));
}

TEST(Selection, IsExactForSmallSizes) {
  for (int round = 0; round < dear::testing::rounds(500); ++round) {
    const auto seed = static_cast<std::uint64_t>(round);
    const std::size_t elements = 1 + seed * 7919 % 200;
    const std::size_t count = 1 + seed * 104729 % elements;
    expect_largest(any_bits(elements, seed), {count});
    expect_largest(whole_numbers(elements, seed), {count});
  }
}

std::vector<float> made(std::size_t count, const std::function<float(std::size_t)>& value) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(i);
  return values;
}

// More elements than a sample is taken of, in which more is collected than there is room for.
TEST(Selection, IsExactForEveryShapeOfALargeSegment) {
  constexpr std::size_t kElements = 135003;
  const std::vector<std::vector<float>> shapes = {
      any_bits(kElements, 1),
      whole_numbers(kElements, 1),
      std::vector<float>(kElements),
      std::vector<float>(kElements, -1.0F),
      std::vector<float>(kElements, kNan),
      made(kElements, [](std::size_t i) { return static_cast<float>(i); }),
      made(kElements, [](std::size_t i) { return -static_cast<float>(kElements - i); }),
      made(kElements, [](std::size_t i) { return i % 997 == 0 ? static_cast<float>(i) : 0.0F; }),
      made(kElements, [](std::size_t i) { return i < kElements / 2 ? 0.0F : static_cast<float>(i % 1009); }),
      made(kElements, [](std::size_t i) {
        return i % 1000 == 7 ? kNan : i % 100 == 3 ? kInfinity : 1e-40F;
      })};
  for (const auto& values : shapes) {
    expect_largest(values, {1, 200, 20000, kElements});
  }
}

// All elements of the sample are larger than all others, so that the guess is too high.
TEST(Selection, IsExactWhereTheSampleMisleads) {
  constexpr std::size_t kElements = std::size_t{1} << 17;
  std::vector<float> values = made(kElements, [](std::size_t i) { return static_cast<float>(i % 1000); });
  Draw random(0, 0, 0);
  for (std::size_t i = 0; i < kElements; i += 8) values[i + random.below(8)] = 1000 + static_cast<float>(i);
  expect_largest(values, {100, 20000});
}

TEST(Selection, ServesOneSegmentAfterAnother) {
  Selection selection;
  for (const std::size_t elements : {200000U, 10U, 150000U, 1U}) {
    const std::vector<float> values = any_bits(elements, elements);
    std::vector<Coordinate> chosen(1 + elements / 100);
    selection.largest(values, chosen);
    const std::vector<std::uint32_t> best = ordered(values);
    EXPECT_EQ(chosen.front().index, *std::min_element(best.begin(), best.begin() + std::ssize(chosen)));
  }
}

TEST(TopK, SendsTheLargestOfEachSegment) {
  const std::vector<float> values = {1, -5, 3, 3, 0, -7, kNan, 2, kNan, 1};
  const auto codec =
      make_gatherable({.scheme = Scheme::top_k, .ratio = 0.4}, {{.range = {0, 5}}, {.range = {5, 10}}}, 0);
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  EXPECT_THAT(encoded(*codec, values).as<std::uint32_t>(),
              ::testing::ElementsAre(1, bits(-5), 2, bits(3), 1, bits(kNan), 3, bits(kNan)));
}

// The place of the block of largest norm, by its definition.
std::uint32_t largest_block(const std::vector<float>& values, std::size_t count) {
  double largest = -1;
  std::size_t chosen = 0;
  for (std::size_t next = 0; next < values.size(); next += count) {
    const std::size_t begin = std::min(next, values.size() - count);
    double sum = 0;
    for (std::size_t i = begin; i < begin + count; ++i) sum += static_cast<double>(values[i]) * values[i];
    if (sum > largest) chosen = begin;
    largest = std::max(largest, sum);
  }
  return static_cast<std::uint32_t>(chosen);
}

std::vector<std::uint32_t> sent_block(const std::vector<float>& values, double ratio) {
  const auto codec =
      make_gatherable({.scheme = Scheme::block_top_k, .ratio = ratio}, whole(values.size()), 0);
  return encoded(*codec, values).as<std::uint32_t>();
}

TEST(BlockTopK, SendsTheBlockOfLargestNorm) {
  for (int round = 0; round < dear::testing::rounds(1000); ++round) {
    const auto seed = static_cast<std::uint64_t>(round);
    const std::size_t elements = 1 + seed * 7919 % 300;
    const std::size_t count = 1 + seed * 104729 % elements;
    const std::vector<float> values = whole_numbers(elements, seed);
    std::vector<std::uint32_t> block = bits_of(values);
    const std::uint32_t begin = largest_block(values, count);
    block = {block.begin() + begin, block.begin() + begin + static_cast<std::ptrdiff_t>(count)};
    block.insert(block.begin(), begin);
    block.resize((block.size() + 1) / 2 * 2);
    const double ratio = (static_cast<double>(count) + 0.5) / static_cast<double>(elements);
    ASSERT_EQ(sent_block(values, std::min(ratio, 1.0)), block) << count << " of " << elements;
  }
}

TEST(BlockTopK, ReachesTheTailAndPrefersNan) {
  EXPECT_EQ(sent_block({1, 1, 1, 1, 1, 1, 9}, 0.3)[0], 5U);  // two elements: the block at the end is {1, 9}
  EXPECT_EQ(sent_block({1, 1, 1, 1, 1, 1, 1}, 0.3)[0], 0U);  // the first of equal ones
  EXPECT_EQ(sent_block({9, 9, kInfinity, 1, kNan, 1}, 0.4)[0], 4U);
  EXPECT_EQ(sent_block({1, 1, 3e38F, 3e38F, 3e38F, -3.1e38F}, 0.4)[0], 4U);  // squares beyond fp32
}

TEST(BlockTopK, AddsUpInTheSameOrderOnEveryProcessor) {
  for (std::size_t count = 1; count < 100; ++count) {
    std::vector<float> values = any_bits(count, count);
    for (float& value : values)
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xbfffffffU);
    const auto elements = static_cast<std::int64_t>(count);
    ASSERT_EQ(kernels().sum_of_squares(values.data(), elements),
              baseline_kernels().sum_of_squares(values.data(), elements));
  }
}

}  // namespace
}  // namespace dear::codec::top_k_test
