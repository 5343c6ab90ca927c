#include "dear/schedule/codec/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/testing/payloads.h"

// These are promises of every codec; what a codec chooses is tested beside it.
namespace dear::codec::codec_test {
namespace {

using codec::testing::decoded;
using codec::testing::encoded;
using codec::testing::Payload;
using codec::testing::whole;
using codec::testing::whole_numbers;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<Compression> kReducible = {{.scheme = Scheme::random_k},
                                             {.scheme = Scheme::random_block},
                                             {.scheme = Scheme::fp16},
                                             {.scheme = Scheme::bf16}};
const std::vector<Compression> kGatherable = {{.scheme = Scheme::random_k, .own_indices = true},
                                              {.scheme = Scheme::random_block, .own_indices = true},
                                              {.scheme = Scheme::top_k},
                                              {.scheme = Scheme::block_top_k}};

std::unique_ptr<Reducible> reducible(Compression compression, double ratio, std::vector<Segment> segments) {
  compression.ratio = ratio;
  return make_reducible(compression, std::move(segments));
}
std::unique_ptr<Gatherable> gatherable(Compression compression, double ratio, std::vector<Segment> segments) {
  compression.ratio = ratio;
  return make_gatherable(compression, std::move(segments), 3);
}

// Calls check(name, codec) with each codec of both kinds.
template <class Check>
void with_each(double ratio, const std::vector<Segment>& segments, Check check) {
  for (const Compression& compression : kReducible) {
    SCOPED_TRACE(name_of(compression.scheme));
    check(*reducible(compression, ratio, segments));
  }
  for (const Compression& compression : kGatherable) {
    SCOPED_TRACE(fmt::format("{}, gathered", name_of(compression.scheme)));
    check(*gatherable(compression, ratio, segments));
  }
}

TEST(EveryCodec, CarriesAllAtRatioOne) {
  for (const std::size_t elements : {1U, 2U, 7U, 64U, 1000U}) {
    const std::vector<float> values = whole_numbers(elements, elements);
    with_each(1, whole(elements),
              [&](auto& codec) { EXPECT_EQ(decoded(codec, encoded(codec, values), elements), values); });
  }
}

TEST(EveryCodec, LeavesAsTheRestWhatDidNotTravel) {
  for (int round = 0; round < dear::testing::rounds(100); ++round) {
    const std::size_t elements = 1 + static_cast<std::size_t>(round) * 3;
    const std::vector<float> values = whole_numbers(elements, static_cast<std::uint64_t>(round));
    with_each(0.2, whole(elements), [&](auto& codec) {
      const Payload payload = encoded(codec, values, round);
      const std::vector<float> travelled = decoded(codec, payload, elements, round);
      std::vector<float> rest = values;
      codec.take_out(payload.data(), round, rest);
      for (std::size_t i = 0; i < elements; ++i) {
        ASSERT_EQ(travelled[i] + rest[i], values[i]);
        ASSERT_TRUE(travelled[i] == 0 || rest[i] == 0);
      }
    });
  }
}

TEST(EveryCodec, LooksAtItsSegmentsOnly) {
  // Between the segments lies NaN, which must neither travel nor be written over.
  std::vector<float> values = whole_numbers(100, 1);
  const std::vector<Segment> segments = {{.range = {3, 40}, .key = 1},
                                         {.range = {40, 40}, .key = 2},
                                         {.range = {41, 42}, .key = 3},
                                         {.range = {60, 99}, .key = 4}};
  std::vector<bool> inside(100);
  for (const Segment& segment : segments) {
    for (auto i = segment.range.begin; i < segment.range.end; ++i) inside[static_cast<std::size_t>(i)] = true;
  }
  for (std::size_t i = 0; i < 100; ++i) {
    if (!inside[i]) values[i] = kNan;
  }
  with_each(0.3, segments, [&](auto& codec) {
    const Payload payload = encoded(codec, values, 2);
    std::vector<float> rest = values;
    codec.take_out(payload.data(), 2, rest);
    for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(std::isnan(rest[i]), !inside[i]) << i;
    const std::vector<float> travelled = decoded(codec, payload, 100, 2);
    for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(travelled[i], inside[i] ? values[i] - rest[i] : 0) << i;
  });
}

TEST(EveryCodec, TreatsEachSegmentAsIfItWereAlone) {
  const std::vector<float> values = whole_numbers(300, 4);
  const std::vector<Segment> segments = {{.range = {0, 100}, .key = 1}, {.range = {100, 300}, .key = 2}};
  std::vector<std::vector<float>> apart;
  for (const Segment& segment : segments) {
    std::size_t row = 0;
    with_each(0.1, {segment}, [&](auto& codec) {
      apart.resize(std::max(apart.size(), row + 1), std::vector<float>(300));
      const std::vector<float> part = decoded(codec, encoded(codec, values, 9), 300, 9);
      for (std::size_t i = 0; i < 300; ++i) apart[row][i] += part[i];
      ++row;
    });
  }
  std::size_t row = 0;
  with_each(0.1, segments,
            [&](auto& codec) { EXPECT_EQ(decoded(codec, encoded(codec, values, 9), 300, 9), apart[row++]); });
}

TEST(EveryCodec, TakesZerosAndNothing) {
  with_each(0.1, whole(50), [&](auto& codec) {
    const std::vector<float> zeros(50);
    EXPECT_EQ(decoded(codec, encoded(codec, zeros), 50), zeros);
  });
  with_each(0.1, whole(0), [&](auto& codec) {
    std::vector<float> nothing;
    const Payload payload = encoded(codec, nothing);
    codec.take_out(payload.data(), 0, nothing);
    EXPECT_TRUE(payload.template as<float>().empty());
  });
  with_each(0.1, {}, [&](auto& codec) { EXPECT_TRUE(encoded(codec, {}).template as<float>().empty()); });
}

TEST(Reducible, EncodingOfASumIsTheSumOfEncodings) {
  for (int round = 0; round < dear::testing::rounds(100); ++round) {
    const std::size_t elements = 1 + static_cast<std::size_t>(round) * 7;
    const std::vector<float> a = whole_numbers(elements, 1), b = whole_numbers(elements, 2);
    std::vector<float> sum(elements);
    for (std::size_t i = 0; i < elements; ++i) sum[i] = a[i] + b[i];
    for (const Compression& compression : {kReducible[0], kReducible[1]}) {
      const auto codec = reducible(compression, 0.3, whole(elements));
      std::vector<float> added = encoded(*codec, a, round).as<float>();
      const std::vector<float> other = encoded(*codec, b, round).as<float>();
      for (std::size_t i = 0; i < added.size(); ++i) added[i] += other[i];
      ASSERT_EQ(encoded(*codec, sum, round).as<float>(), added);
    }
  }
}

TEST(Reducible, HasSoManyElementsOfItsType) {
  const std::vector<Segment> segments = {
      {.range = {0, 1000}}, {.range = {1000, 1005}}, {.range = {1005, 1005}}};
  for (const Compression& compression : {kReducible[0], kReducible[1]}) {
    const auto codec = reducible(compression, 0.01, segments);
    EXPECT_EQ(codec->dtype(), DType::f32);
    EXPECT_EQ(codec->elements(0), 10 + 1);
    EXPECT_EQ(codec->most_elements(), 11);
  }
  EXPECT_EQ(reducible(kReducible[2], 0.01, segments)->dtype(), DType::f16);
  EXPECT_EQ(reducible(kReducible[3], 0.01, segments)->dtype(), DType::bf16);
  EXPECT_EQ(reducible(kReducible[3], 0.01, segments)->elements(0), 1005);
}

TEST(Gatherable, HasEightBytesForEachCoordinateAndABlockFourForEachValue) {
  const std::vector<Segment> segments = {
      {.range = {0, 1000}}, {.range = {1000, 1005}}, {.range = {1005, 1005}}};
  EXPECT_EQ(gatherable(kGatherable[0], 0.01, segments)->bytes(0), 8 * 11);
  EXPECT_EQ(gatherable(kGatherable[2], 0.01, segments)->most_bytes(), 8 * 11);
  // 1 + 10 elements and one that pads them; 1 + 1.
  EXPECT_EQ(gatherable(kGatherable[1], 0.01, segments)->bytes(0), 4 * (12 + 2));
  EXPECT_EQ(gatherable(kGatherable[3], 0.01, segments)->most_bytes(), 4 * (12 + 2));
  const std::vector<float> values(1005, 1.0F);
  EXPECT_EQ(encoded(*gatherable(kGatherable[3], 0.01, segments), values).as<float>()[11], 0);
}

TEST(EveryCodec, FollowsTheRatioOfTheWarmUp) {
  const std::vector<float> values = whole_numbers(1000, 3);
  for (Compression compression : {kReducible[0], kReducible[1], kGatherable[0], kGatherable[2]}) {
    compression.warm_up_steps = 4;
    const auto check = [&](auto& codec, std::int64_t bytes_each, auto bytes, std::int64_t most) {
      EXPECT_EQ(most, 250 * bytes_each);
      for (std::int64_t step = 0; step < 6; ++step) {
        const auto expected = static_cast<std::int64_t>(std::floor(1000 * compression.ratio_at(step)));
        EXPECT_EQ(bytes(step), expected * bytes_each);
        std::vector<float> rest = values;
        const Payload payload = encoded(codec, values, step);
        codec.take_out(payload.data(), step, rest);
        const std::vector<float> travelled = decoded(codec, payload, 1000, step);
        for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(travelled[i] + rest[i], values[i]);
      }
    };
    if (compression.gathers()) {
      const auto codec = make_gatherable(compression, whole(1000), 0);
      check(*codec, 8, [&](std::int64_t step) { return codec->bytes(step); }, codec->most_bytes());
    } else {
      const auto codec = make_reducible(compression, whole(1000));
      check(
          *codec, 4, [&](std::int64_t step) { return 4 * codec->elements(step); },
          4 * codec->most_elements());
    }
  }
}

TEST(Gatherable, AddsSoManyTimesWhatEachRankSent) {
  const std::vector<float> values = whole_numbers(60, 8);
  for (const Compression& compression : kGatherable) {
    const auto codec = gatherable(compression, 0.5, whole(60));
    const Payload payload = encoded(*codec, values);
    std::vector<float> once = decoded(*codec, payload, 60);
    std::vector<float> sum(60, 1.0F);
    codec->add(payload.data(), 0, 0.5F, sum);
    codec->add(payload.data(), 0, 0.25F, sum);
    for (std::size_t i = 0; i < 60; ++i) ASSERT_EQ(sum[i], 1 + 0.75F * once[i]);
  }
}

TEST(Gatherable, AddsACoordinateThatIsNamedTwiceTwice) {
  const auto codec = gatherable(kGatherable[2], 0.5, whole(4));
  const std::vector<float> twice = {std::bit_cast<float>(1U), 2, std::bit_cast<float>(1U), 3};
  std::vector<float> sum(4);
  codec->add(reinterpret_cast<const std::byte*>(twice.data()), 0, 1, sum);
  EXPECT_EQ(sum, (std::vector<float>{0, 5, 0, 0}));
}

TEST(Gatherable, RefusesCoordinatesOutsideOfASegment) {
  for (const Compression& compression : kGatherable) {
    SCOPED_TRACE(name_of(compression.scheme));
    const auto codec = gatherable(compression, 0.5, {{.range = {10, 14}}});
    for (const std::uint32_t index : {4U, 14U, 0x80000000U, 0xffffffffU}) {
      std::vector<std::uint32_t> foreign(4);
      foreign[0] = index;
      const auto* payload = reinterpret_cast<const std::byte*>(foreign.data());
      std::vector<float> values(20);
      EXPECT_THROW(codec->add(payload, 0, 1, values), MismatchError);
      EXPECT_THROW(codec->take_out(payload, 0, values), MismatchError);
    }
  }
}

TEST(Codec, IsMadeOfASchemeOfItsKind) {
  for (const Compression& compression : kGatherable) {
    EXPECT_THROW(make_reducible(compression, whole(10)), ConfigError);
  }
  for (const Compression& compression : kReducible) {
    EXPECT_THROW(make_gatherable(compression, whole(10), 0), ConfigError);
  }
  for (const Scheme scheme : {Scheme::low_rank, Scheme::sketch}) {
    EXPECT_THROW(make_reducible({.scheme = scheme}, whole(10)), ConfigError);
    EXPECT_THROW(make_gatherable({.scheme = scheme}, whole(10), 0), ConfigError);
  }
}

TEST(Codec, RefusesSegmentsThatOverlapOrAreTooLong) {
  const Compression compression{.scheme = Scheme::random_k};
  EXPECT_THROW(make_reducible(compression, {{.range = {0, 10}}, {.range = {9, 20}}}), ConfigError);
  EXPECT_THROW(make_reducible(compression, {{.range = {5, 4}}}), ConfigError);
  EXPECT_THROW(make_reducible(compression, {{.range = {0, (std::int64_t{1} << 32) + 1}}}), ConfigError);
}

}  // namespace
}  // namespace dear::codec::codec_test
