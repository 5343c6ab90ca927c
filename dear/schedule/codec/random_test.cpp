#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/kept.h"
#include "dear/schedule/codec/testing/payloads.h"

namespace dear::codec::random_test {
namespace {

using codec::testing::any_bits;
using codec::testing::bits_of;
using codec::testing::decoded;
using codec::testing::encoded;
using codec::testing::Payload;
using codec::testing::whole;
using ::testing::ElementsAreArray;

constexpr std::uint64_t kSeed = 3, kKey = 5;
constexpr int kRank = 2;

Compression random_scheme(Scheme scheme, double ratio) {
  return {.scheme = scheme, .ratio = ratio, .seed = kSeed};
}
Compression own(Compression compression) {
  compression.own_indices = true;
  return compression;
}

// The places of a step, by their definition.
std::vector<std::uint32_t> drawn_coordinates(std::size_t elements, double ratio, std::int64_t step,
                                             int rank) {
  Draw random(kSeed, step, kKey, rank);
  const auto count = static_cast<std::size_t>(kept(static_cast<std::int64_t>(elements), ratio));
  const bool rest = count > elements / 2;
  std::set<std::uint32_t> drawn, chosen;
  while (drawn.size() < (rest ? elements - count : count)) drawn.insert(random.below(elements));
  for (std::uint32_t i = 0; i < elements; ++i) {
    if (drawn.contains(i) != rest) chosen.insert(i);
  }
  return {chosen.begin(), chosen.end()};
}
std::vector<std::uint32_t> drawn_block(std::size_t elements, double ratio, std::int64_t step, int rank) {
  const std::uint32_t begin = Draw(kSeed, step, kKey, rank).below(elements);
  std::vector<std::uint32_t> places;
  for (std::int64_t i = 0; i < kept(static_cast<std::int64_t>(elements), ratio); ++i) {
    places.push_back(static_cast<std::uint32_t>((begin + static_cast<std::size_t>(i)) % elements));
  }
  return places;
}

struct Case {
  Scheme scheme;
  std::vector<std::uint32_t> (*places)(std::size_t elements, double ratio, std::int64_t step, int rank);
};
constexpr Case kCases[] = {{Scheme::random_k, drawn_coordinates}, {Scheme::random_block, drawn_block}};

TEST(RandomSchemes, SendTheValuesAtDrawnPlaces) {
  for (int round = 0; round < dear::testing::rounds(300); ++round) {
    const std::size_t elements = 1 + static_cast<std::size_t>(round);
    const double ratio = round % 10 / 9.0 + 1e-3;
    const std::vector<float> values = any_bits(elements, elements);
    for (const Case& one : kCases) {
      std::vector<std::uint32_t> expected;
      for (const std::uint32_t place : one.places(elements, ratio, round, Draw::kEveryRank)) {
        expected.push_back(bits_of(values)[place]);
      }
      const auto codec = make_reducible(random_scheme(one.scheme, ratio), whole(elements, kKey));
      ASSERT_EQ(encoded(*codec, values, round).as<std::uint32_t>(), expected);
    }
  }
}

TEST(RandomSchemes, SendTheirOwnPlacesAlong) {
  for (int round = 0; round < dear::testing::rounds(300); ++round) {
    const std::size_t elements = 1 + static_cast<std::size_t>(round);
    const double ratio = round % 10 / 9.0 + 1e-3;
    const std::vector<float> values = any_bits(elements, elements);
    const std::vector<std::uint32_t> bits = bits_of(values);
    std::vector<std::uint32_t> pairs;
    for (const std::uint32_t place : drawn_coordinates(elements, ratio, round, kRank)) {
      pairs.insert(pairs.end(), {place, bits[place]});
    }
    const auto codec =
        make_gatherable(own(random_scheme(Scheme::random_k, ratio)), whole(elements, kKey), kRank);
    ASSERT_EQ(encoded(*codec, values, round).as<std::uint32_t>(), pairs);

    const std::vector<std::uint32_t> places = drawn_block(elements, ratio, round, kRank);
    std::vector<std::uint32_t> block = {places.front()};
    for (const std::uint32_t place : places) block.push_back(bits[place]);
    block.resize((block.size() + 1) / 2 * 2);
    const auto blocks =
        make_gatherable(own(random_scheme(Scheme::random_block, ratio)), whole(elements, kKey), kRank);
    ASSERT_EQ(encoded(*blocks, values, round).as<std::uint32_t>(), block);
  }
}

// 100 elements of which 7 travel: a window that wraps in every sixteenth step.
TEST(RandomSchemes, ChooseEachCoordinateEquallyOften) {
  constexpr std::size_t kElements = 100;
  constexpr int kSteps = 4000;
  const std::vector<float> ones(kElements, 1.0F);
  const auto check = [&](auto& codec) {
    std::vector<double> counts(kElements);
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> travelled = decoded(codec, encoded(codec, ones, step), kElements, step);
      for (std::size_t i = 0; i < kElements; ++i) counts[i] += static_cast<double>(travelled[i]);
    }
    constexpr double kExpected = 0.07 * kSteps;
    double chi_square = 0;
    for (const double count : counts) chi_square += (count - kExpected) * (count - kExpected) / kExpected;
    return chi_square;
  };
  // Coordinates of one step exclude one another, so that random-k has less than the 99 of independent counts;
  // those of a block come together: up to 7 times as much. Six standard deviations above.
  const Segment segment{.range = {0, kElements}, .key = kKey};
  for (const Case& one : kCases) {
    const Compression compression = random_scheme(one.scheme, 0.07);
    const double most = (99 + 6 * std::sqrt(2 * 99.0)) * (one.scheme == Scheme::random_k ? 1 : 7);
    EXPECT_LE(check(*make_reducible(compression, {segment})), most);
    EXPECT_LE(check(*make_gatherable(own(compression), {segment}, kRank)), most);
  }
}

TEST(RandomSchemes, RanksShareOneDrawOrHaveEachTheirOwn) {
  const std::vector<float> values = any_bits(1000, 1);
  for (const Case& one : kCases) {
    const Compression compression = own(random_scheme(one.scheme, 0.05));
    const auto of_rank = [&](int rank) {
      return encoded(*make_gatherable(compression, whole(1000), rank), values, 1).as<std::uint32_t>();
    };
    EXPECT_EQ(of_rank(0), of_rank(0));
    EXPECT_NE(of_rank(0), of_rank(1));
  }
}

TEST(RandomSchemes, ChangeWithTheStepAndComeBackToIt) {
  const std::vector<float> values = any_bits(1000, 1);
  for (const Case& one : kCases) {
    const auto codec = make_reducible(random_scheme(one.scheme, 0.05), whole(1000));
    const auto first = encoded(*codec, values, 0).as<std::uint32_t>();
    EXPECT_NE(encoded(*codec, values, 1).as<std::uint32_t>(), first);
    EXPECT_THAT(encoded(*codec, values, 0).as<std::uint32_t>(), ElementsAreArray(first));
  }
}

TEST(RandomSchemes, ScaleWhatArrivesWhereTheyAreUnbiased) {
  const std::vector<float> ones(90, 1.0F);
  for (const Case& one : kCases) {
    Compression compression = random_scheme(one.scheme, 0.1);
    compression.unbiased = true;
    const auto shared = make_reducible(compression, whole(90));
    const Payload payload = encoded(*shared, ones);
    EXPECT_EQ(payload.as<float>(), std::vector<float>(9, 1.0F));  // sums of ranks stay exact
    std::vector<float> travelled = decoded(*shared, payload, 90);
    std::sort(travelled.begin(), travelled.end());
    std::vector<float> expected(90);
    std::fill_n(expected.end() - 9, 9, 10.0F);
    EXPECT_EQ(travelled, expected);

    const auto gathered = make_gatherable(own(compression), whole(90), kRank);
    std::vector<float> sum(90);
    gathered->add(encoded(*gathered, ones).data(), 0, 0.5F, sum);
    std::sort(sum.begin(), sum.end());
    std::fill_n(expected.end() - 9, 9, 5.0F);
    EXPECT_EQ(sum, expected);
  }
}

}  // namespace
}  // namespace dear::codec::random_test
