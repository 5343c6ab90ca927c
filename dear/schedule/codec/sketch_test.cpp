#include "dear/schedule/codec/sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/bloom.h"
#include "dear/schedule/codec/kernels.h"
#include "dear/schedule/codec/key_index.h"

namespace dear::codec::sketch_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

// Returns what ranks send, combined as collectives do it.
template <typename T>
struct Sent {
  std::vector<std::uint64_t> index;
  std::vector<T> rows;
};

template <typename T>
Sent<T> sent_by(Sketch& sketch, const std::vector<float>& values, int rank, int scale,
                Encoded* encoded = {}) {
  // Whatever lay there before: encode() writes all of it.
  Sent<T> sent{.index = std::vector<std::uint64_t>(size(sketch.shape().index_words()), ~std::uint64_t{0}),
               .rows = std::vector<T>(size(sketch.shape().values()), T{77})};
  const Encoded met = sketch.encode<T>(values, rank, scale, sent.index, sent.rows);
  if (encoded != nullptr) *encoded = met;
  return sent;
}

template <typename T>
void combine(Sent<T>& all, const Sent<T>& one) {
  for (std::size_t i = 0; i < all.index.size(); ++i) all.index[i] |= one.index[i];
  for (std::size_t i = 0; i < all.rows.size(); ++i) all.rows[i] = sum_of(all.rows[i], one.rows[i]);
}

template <typename T>
Sent<T> sent_by_all(Sketch& sketch, const std::vector<std::vector<float>>& by_rank, int scale) {
  Sent<T> all = sent_by<T>(sketch, by_rank[0], 0, scale);
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    combine(all, sent_by<T>(sketch, by_rank[rank], static_cast<int>(rank), scale));
  }
  return all;
}

template <typename T>
struct Recovered {
  Reading reading{};
  std::int64_t unpeeled = 0;
  int rounds = 0;
  std::vector<std::vector<T>> by_owner;
};

template <typename T>
Recovered<T> recovered(Sketch& sketch, Sent<T> all) {
  Recovered<T> result{.reading = sketch.read(all.index)};
  const std::int64_t part = sketch.shape().values_per_owner();
  for (int owner = 0; owner < sketch.shape().ranks; ++owner) {
    std::vector<T> values(size(sketch.keys_of(owner) * sketch.shape().block));
    const Peeled peeled =
        sketch.peel<T>(owner, std::span(all.rows).subspan(size(owner * part), size(part)), values);
    result.unpeeled += peeled.unpeeled;
    result.rounds = std::max(result.rounds, peeled.rounds);
    result.by_owner.push_back(std::move(values));
  }
  return result;
}

std::vector<float> spread(const Sketch& sketch, const std::vector<std::vector<float>>& by_owner) {
  const std::vector<std::span<const float>> parts(by_owner.begin(), by_owner.end());
  std::vector<float> out(size(sketch.shape().elements));
  sketch.spread(parts, out);
  return out;
}

template <typename Int>
std::vector<float> spread_exact(const Sketch& sketch, const std::vector<std::vector<Int>>& by_owner,
                                int scale) {
  std::vector<std::vector<float>> rounded;
  for (const std::vector<Int>& sums : by_owner) {
    rounded.emplace_back(sums.size());
    unscale(std::span<const Int>(sums), scale, rounded.back());
  }
  return spread(sketch, rounded);
}

// Normally distributed where one of them is drawn, else zero.
std::vector<float> sparse(std::mt19937_64& generator, std::int64_t elements, double density) {
  std::bernoulli_distribution some(density);
  std::normal_distribution<float> value;
  std::vector<float> values(size(elements));
  for (float& one : values) one = some(generator) ? value(generator) : 0;
  return values;
}

// The algorithm by its definition, key after key, in as many rounds as change something. Of one group.
struct Oracle {
  std::vector<std::int64_t> sums;
  std::int64_t unpeeled = 0;
  int rounds = 0;
};
Oracle peeled_by_definition(const std::vector<std::array<std::uint32_t, 3>>& keys,
                            std::vector<std::int64_t> rows) {
  Oracle oracle{.sums = std::vector<std::int64_t>(keys.size()),
                .unpeeled = static_cast<std::int64_t>(keys.size())};
  std::vector<int> count(rows.size());
  for (const auto& key : keys) {
    for (const std::uint32_t row : key) ++count[row];
  }
  std::vector<bool> done(keys.size());
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<std::size_t> alone;
    for (std::size_t key = 0; key < keys.size(); ++key) {
      if (done[key]) continue;
      for (const std::uint32_t row : keys[key]) {
        if (count[row] != 1) continue;
        oracle.sums[key] = rows[row];
        alone.push_back(key);
        break;
      }
    }
    for (const std::size_t key : alone) {
      for (const std::uint32_t row : keys[key]) {
        rows[row] -= oracle.sums[key];
        --count[row];
      }
      done[key] = changed = true;
      --oracle.unpeeled;
    }
    oracle.rounds += changed ? 1 : 0;
  }
  return oracle;
}

// Keys at random rows: the sums, the rounds and the keys that stay are those of the definition.
TEST(Peeling, IsThatOfTheDefinition) {
  std::mt19937_64 generator(1);
  for (int trial = 0; trial < testing::rounds(400); ++trial) {
    const auto range = std::uniform_int_distribution<std::uint32_t>(1, 60)(generator);
    const auto count = std::uniform_int_distribution<std::size_t>(0, 3 * range)(generator);
    std::vector<std::array<std::uint32_t, 3>> keys;
    std::vector<PackedRows> packed;
    std::vector<std::int64_t> rows(3 * range), sums(count);
    for (std::size_t key = 0; key < count; ++key) {
      const auto row = [&] { return std::uniform_int_distribution<std::uint32_t>(0, range - 1)(generator); };
      keys.push_back({row(), range + row(), 2 * range + row()});
      packed.push_back(codec::packed(keys.back()[0], keys.back()[1], keys.back()[2]));
      sums[key] = static_cast<std::int64_t>(generator() >> 8);
      for (const std::uint32_t place : keys.back()) rows[place] = sum_of(rows[place], sums[key]);
    }
    const Oracle oracle = peeled_by_definition(keys, rows);
    std::vector<std::int64_t> found(count);
    PeelingMemory memory;
    const PeeledGroup peeled = peel_group<1>(packed, rows.size(), 1, rows.data(), found.data(), memory);
    ASSERT_EQ(static_cast<std::int64_t>(count) - peeled.peeled, oracle.unpeeled);
    ASSERT_EQ(peeled.rounds, oracle.rounds);
    if (oracle.unpeeled == 0) {
      ASSERT_EQ(found, oracle.sums);
      ASSERT_EQ(found, sums);
    }
  }
}

// Whatever the sizes: the integers are those of the dense sum, or the failure is reported.
TEST(Sketch, GivesTheDenseSumInIntegersOrSaysThatItCannot) {
  std::mt19937_64 generator(2);
  const auto one_of = [&](auto... choices) {
    const std::array all{choices...};
    return all[std::uniform_int_distribution<std::size_t>(0, all.size() - 1)(generator)];
  };
  int recovered_trials = 0, trials = testing::rounds(10'000);
  for (int trial = 0; trial < trials; ++trial) {
    const int ranks = one_of(1, 2, 3, 4, 7, 16);
    const std::int64_t elements =
        std::uniform_int_distribution<std::int64_t>(0, one_of(3, 100, 1000, 3000))(generator);
    SketchSpec spec{.room = one_of(1.3, 1.5, 2.0),
                    .block = one_of(1, 1, 2, 16, 5, 64),
                    .index = one_of(SketchSpec::Index::bitmap, SketchSpec::Index::bloom),
                    .exact = true};
    const double density = one_of(0.0, 0.001, 0.01, 0.05, 0.3);
    std::vector<std::vector<float>> by_rank;
    std::vector<std::int64_t> dense(size(elements));
    std::vector<char> present(size((elements + spec.block - 1) / spec.block));
    constexpr int kScale = 30;
    for (int rank = 0; rank < ranks; ++rank) {
      by_rank.push_back(sparse(generator, elements, density));
      for (std::size_t i = 0; i < dense.size(); ++i) {
        const std::int64_t integer = std::llrint(std::ldexp(by_rank.back()[i], kScale));
        by_rank.back()[i] = std::ldexp(static_cast<float>(integer), -kScale);  // what fixed point holds
        dense[i] += integer;
        if (by_rank.back()[i] != 0) present[i / size(spec.block)] = 1;
      }
    }
    const std::int64_t keys = std::count(present.begin(), present.end(), 1);
    Sketch sketch(shape_for(spec, elements, ranks, static_cast<double>(keys), generator()));
    const Recovered<std::int64_t> result =
        recovered(sketch, sent_by_all<std::int64_t>(sketch, by_rank, kScale));
    ASSERT_TRUE(result.reading.header.usable());
    if (spec.index == SketchSpec::Index::bitmap) {
      ASSERT_EQ(result.reading.keys, keys);
    } else {
      ASSERT_GE(result.reading.keys, keys);
    }
    if (result.unpeeled > 0) continue;
    ++recovered_trials;
    std::vector<float> rounded(dense.size());
    unscale(std::span<const std::int64_t>(dense), kScale, rounded);
    ASSERT_EQ(spread_exact(sketch, result.by_owner, kScale), rounded) << "trial " << trial;
    std::int64_t sum = 0, found = 0;  // and before they are rounded
    for (const std::int64_t value : dense) sum += value;
    for (const auto& values : result.by_owner) {
      for (const std::int64_t value : values) found += value;
    }
    ASSERT_EQ(found, sum);
  }
  EXPECT_GT(recovered_trials, trials * 9 / 10);
}

TEST(Sketch, OfASumIsTheSumOfSketches) {
  std::mt19937_64 generator(3);
  for (const std::int64_t block : {1, 8, 100}) {
    Sketch sketch(shape_for({.block = block}, 5000, 2, 600, 9));
    std::vector<float> a = sparse(generator, 5000, 0.05), b = sparse(generator, 5000, 0.05), sum(5000);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      a[i] = std::round(100 * a[i]);
      b[i] = std::round(100 * b[i]);
      if (a[i] == -b[i]) a[i] = b[i] = 0;  // the index would keep it
      sum[i] = a[i] + b[i];
    }
    const Sent<std::int32_t> both = sent_by_all<std::int32_t>(sketch, {a, b}, 0);
    const Sent<std::int32_t> at_once = sent_by<std::int32_t>(sketch, sum, 0, 0);
    EXPECT_EQ(both.rows, at_once.rows);
    const auto header = index_header_words(2);
    EXPECT_TRUE(std::equal(both.index.begin() + header, both.index.end(), at_once.index.begin() + header));
  }
}

TEST(Sketch, IsPreciseInFloats) {
  std::mt19937_64 generator(4);
  for (const double room : {1.25, 1.5, 2.0}) {
    for (const std::int64_t block : {1, 16}) {
      constexpr std::int64_t kElements = 100'000;
      std::vector<std::vector<float>> by_rank;
      std::vector<double> dense(kElements);
      for (int rank = 0; rank < 4; ++rank) {
        by_rank.push_back(sparse(generator, kElements, block == 1 ? 0.03 : 0.001));
        for (std::size_t i = 0; i < kElements; ++i) dense[i] += static_cast<double>(by_rank.back()[i]);
      }
      Sketch sketch({.elements = kElements,
                     .block = block,
                     .ranks = 4,
                     .range = static_cast<std::int64_t>(room * (block == 1 ? 1050 : 35) + 60)});
      const Recovered<float> result = recovered(sketch, sent_by_all<float>(sketch, by_rank, 0));
      ASSERT_EQ(result.unpeeled, 0);
      const std::vector<float> found = spread(sketch, result.by_owner);
      double error = 0, norm = 0, most_error = 0, most = 0;
      for (std::size_t i = 0; i < kElements; ++i) {
        const double off = static_cast<double>(found[i]) - dense[i];
        error += off * off;
        norm += dense[i] * dense[i];
        most_error = std::max(most_error, std::abs(off));
        most = std::max(most, std::abs(dense[i]));
      }
      EXPECT_LE(std::sqrt(error / norm), 1e-5);
      EXPECT_LE(most_error, 1e-5 * most);
    }
  }
}

// Shares of groups that are recovered as a whole, beside what an independent program found.
TEST(Sketch, RecoversAsOftenAsPeelingCan) {
  struct Row {
    std::int64_t keys;
    int trials;
    std::vector<std::pair<double, double>> rate_at_room;
  };
  const std::vector<Row> table = {
      {100, 2000, {{1.2, 0.08}, {1.23, 0.21}, {1.25, 0.32}, {1.3, 0.57}, {1.5, 0.92}, {2.0, 0.98}}},
      {1000, 1000, {{1.2, 0.02}, {1.23, 0.46}, {1.25, 0.76}, {1.3, 0.99}, {1.5, 1}, {2.0, 1}}},
      {10'000, 300, {{1.2, 0}, {1.23, 0.84}, {1.25, 1}, {1.3, 1}, {1.5, 1}, {2.0, 1}}}};
  PeelingMemory memory;
  for (const Row& row : table) {
    for (const auto& [room, rate] : row.rate_at_room) {
      const auto range = static_cast<std::uint32_t>(std::llround(room * static_cast<double>(row.keys) / 3));
      int whole = 0;
      const int trials = testing::rounds(row.trials);
      for (int trial = 0; trial < trials; ++trial) {
        const KeyHash hash(static_cast<std::uint64_t>(1000 * row.keys + trial));
        std::vector<std::uint32_t> numbers(size(row.keys));
        std::iota(numbers.begin(), numbers.end(), 0U);
        std::vector<PackedRows> keys(numbers.size());
        kernels().rows(hash, numbers.data(), row.keys, range, keys.data());
        std::vector<std::int32_t> rows(std::size_t{3} * range), values(keys.size());
        whole += peel_group<1>(keys, rows.size(), 1, rows.data(), values.data(), memory).peeled == row.keys
                     ? 1
                     : 0;
      }
      // Five points, and what chance does to so many trials.
      const double chance = 3 * std::sqrt(rate * (1 - rate) / trials);
      EXPECT_NEAR(static_cast<double>(whole) / trials, rate, 0.05 + chance)
          << row.keys << " keys, room " << room;
    }
  }
}

// As many keys are more than one group.
TEST(Sketch, RecoversManyKeysInGroups) {
  std::mt19937_64 generator(10);
  const std::vector<float> values = sparse(generator, 1'000'000, 0.1);
  for (const double room : {1.3, 1.5, 2.0, 4.0}) {
    for (int trial = 0; trial < 3; ++trial) {
      Sketch sketch(shape_for({.room = room}, 1'000'000, 2, 100'000, generator()));
      EXPECT_GT(sketch.shape().groups, 1);
      const Recovered<float> result = recovered(sketch, sent_by<float>(sketch, values, 1, 0));
      EXPECT_TRUE(result.reading.usable());
      EXPECT_EQ(result.unpeeled, 0);
      EXPECT_LT(result.rounds, room > 1.4 ? 12 : 30);
    }
  }
}

TEST(Sketch, TellsAllRanksWhoMetWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<std::vector<float>> by_rank(70, std::vector<float>(5000));
    by_rank[3][4999] = by_rank[66][0] = bad;
    by_rank[1][7] = 1;
    Sketch sketch(shape_for({}, 5000, 70, 100, 1));
    Encoded encoded;
    sent_by<float>(sketch, by_rank[3], 3, 0, &encoded);
    EXPECT_FALSE(encoded.usable());
    const Reading reading = sketch.read(sent_by_all<float>(sketch, by_rank, 0).index);
    EXPECT_THAT(reading.header.not_finite, ElementsAre(3, 66));
    EXPECT_THAT(reading.header.overflow, IsEmpty());
    EXPECT_FALSE(reading.usable());
    const Reading exact = sketch.read(sent_by_all<std::int64_t>(sketch, by_rank, 20).index);
    EXPECT_THAT(exact.header.not_finite, ElementsAre(3, 66));
    EXPECT_THAT(exact.header.overflow, IsEmpty());
  }
}

TEST(Sketch, TakesNegativeZeroForZeroAndDenormalsForNumbers) {
  std::vector<float> values(130, -0.0F);
  Sketch sketch(shape_for({}, 130, 1, 10, 1));
  Encoded encoded;
  const Sent<float> none = sent_by<float>(sketch, values, 0, 0, &encoded);
  EXPECT_EQ(encoded.keys, 0);
  EXPECT_EQ(encoded.met.largest_bits, 0);
  EXPECT_EQ(sketch.read(none.index).header.exponent, IndexHeader::kNoExponent);
  values[64] = -std::numeric_limits<float>::denorm_min();
  values[129] = 3 * std::numeric_limits<float>::denorm_min();
  const Recovered<float> result = recovered(sketch, sent_by<float>(sketch, values, 0, 0));
  EXPECT_EQ(result.reading.keys, 2);
  EXPECT_EQ(result.reading.header.exponent, -126);
  EXPECT_EQ(spread(sketch, result.by_owner), values);  // -0.0 == 0.0
}

// By key: the sign of a zero travels in a block with another value, and is lost with a block that stays at
// home.
TEST(KeyIndexOfValues, KeepsTheSignOfAZeroThatTravels) {
  std::vector<float> values(48, -0.0F);
  values[20] = 1;
  KeyIndex keys(shape_for({.room = 0, .block = 16}, 48, 1, 1, 1));
  std::vector<std::uint64_t> index(static_cast<std::size_t>(keys.shape().index_words()));
  write_header(index, 1, 0, keys.encode(values, index));
  keys.read(index);
  ASSERT_THAT(keys.keys(), ElementsAre(1));
  std::vector<float> by_key(16), out(48);
  keys.gather(values, by_key);
  keys.spread(by_key, out);
  for (std::size_t i = 0; i < 48; ++i) EXPECT_EQ(std::signbit(out[i]), i / 16 == 1 && i != 20) << i;
  EXPECT_EQ(out[20], 1);
}

TEST(Sketch, KeepsKeysWhoseValuesCancel) {
  std::vector<float> values(1000), opposite(1000);
  for (std::size_t i = 0; i < 1000; i += 7) {
    values[i] = static_cast<float>(i) + 0.5F;
    opposite[i] = -values[i];
  }
  Sketch sketch(shape_for({.room = 2}, 1000, 2, 143, 5));
  const Recovered<float> result = recovered(sketch, sent_by_all<float>(sketch, {values, opposite}, 0));
  EXPECT_EQ(result.reading.keys, 143);
  EXPECT_EQ(result.unpeeled, 0);
  EXPECT_THAT(spread(sketch, result.by_owner), Each(0));
}

TEST(Sketch, HoldsEverythingNothingAndWhatIsDense) {
  Sketch empty(shape_for({}, 0, 3, 0, 1));
  EXPECT_EQ(recovered(empty, sent_by_all<float>(empty, {{}, {}, {}}, 0)).reading.keys, 0);
  Sketch zeros(shape_for({}, 999, 2, 10, 1));
  const Recovered<float> none =
      recovered(zeros, sent_by_all<float>(zeros, {std::vector<float>(999), std::vector<float>(999)}, 0));
  EXPECT_TRUE(none.reading.usable());
  EXPECT_EQ(none.rounds, 0);
  EXPECT_THAT(spread(zeros, none.by_owner), Each(0));
  const std::vector<float> ones(40'000, 1);
  for (const std::int64_t block : {1, 16}) {
    Sketch dense(shape_for({.room = 1.5, .block = block}, 40'000, 2, 40'000, 2));
    const Recovered<float> all = recovered(dense, sent_by_all<float>(dense, {ones, ones}, 0));
    EXPECT_EQ(all.unpeeled, 0);
    EXPECT_THAT(spread(dense, all.by_owner), Each(2));
  }
}

TEST(Sketch, SaysThatRowsAreTooFew) {
  std::mt19937_64 generator(6);
  const std::vector<float> values = sparse(generator, 100'000, 0.1);
  Sketch sketch(shape_for({}, 100'000, 2, 3000, 1));
  const Recovered<float> result = recovered(sketch, sent_by<float>(sketch, values, 0, 0));
  EXPECT_FALSE(result.reading.fits);
  EXPECT_GT(result.unpeeled, 0);
  // Just below the threshold nobody can know it before.
  Sketch tight({.elements = 100'000, .range = 10'100 * 121 / 300});
  EXPECT_GT(recovered(tight, sent_by<float>(tight, values, 0, 0)).unpeeled, 0);
}

TEST(Sketch, ScalesSoThatSumsOfAllRanksFit) {
  for (const int ranks : {1, 2, 3, 8}) {
    std::mt19937_64 generator(7);
    std::vector<std::vector<float>> by_rank;
    for (int rank = 0; rank < ranks; ++rank) {
      by_rank.push_back(sparse(generator, 2000, 0.1));
      for (float& value : by_rank.back()) value *= 1e18F;
      by_rank.back()[0] = 1e20F;  // all ranks' largest, at one place
    }
    Sketch sketch(shape_for({.room = 2}, 2000, ranks, 1500, 1));
    const int exponent = sketch.read(sent_by_all<float>(sketch, by_rank, 0).index).header.exponent;
    EXPECT_EQ(exponent, 67);
    const int scale = scale_for(DType::i64, exponent, ranks);
    const Recovered<std::int64_t> result =
        recovered(sketch, sent_by_all<std::int64_t>(sketch, by_rank, scale));
    EXPECT_TRUE(result.reading.usable());
    EXPECT_EQ(spread_exact(sketch, result.by_owner, scale)[0], static_cast<float>(ranks) * 1e20F);
    by_rank.back()[1] = -1e24F;  // grew by more than the scale has room for
    EXPECT_THAT(sketch.read(sent_by_all<std::int64_t>(sketch, by_rank, scale).index).header.overflow,
                ElementsAre(ranks - 1));
    EXPECT_THAT(
        sketch.read(sent_by_all<std::int32_t>(sketch, by_rank, scale_for(DType::i32, exponent, ranks)).index)
            .header.overflow,
        ElementsAre(ranks - 1));
  }
  // A scale chosen when everything was zero holds nothing else.
  EXPECT_EQ(scale_for(DType::i64, IndexHeader::kNoExponent, 2), kNoScale);
  Sketch sketch(shape_for({}, 10, 1, 5, 1));
  Encoded encoded;
  sent_by<std::int64_t>(sketch, {0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, 0, kNoScale, &encoded);
  EXPECT_TRUE(encoded.met.overflow);
}

// After a spike the scale is too coarse for what comes next, and rows of fp32 may overflow before values do.
TEST(Sketch, SaysThatItLosesBits) {
  std::vector<std::vector<float>> by_rank(2, std::vector<float>(2000));
  for (std::size_t i = 0; i < 2000; i += 20) by_rank[1][i] = 1.1F;
  Sketch sketch(shape_for({}, 2000, 2, 100, 1));
  for (const int exponent : {1, 20, 30, 90}) {
    const int scale = scale_for(DType::i64, exponent, 2);
    const Reading reading = sketch.read(sent_by_all<std::int64_t>(sketch, by_rank, scale).index);
    EXPECT_EQ(reading.usable(), exponent <= 30) << exponent;
    EXPECT_EQ(reading.header.inexact.size(), exponent <= 30 ? 0U : 1U);
  }
  by_rank[0][7] = 1e37F;
  EXPECT_THAT(sketch.read(sent_by_all<float>(sketch, by_rank, 0).index).header.overflow, ElementsAre(0));
}

TEST(Sketch, RefusesShapesAndIndicesThatAreNone) {
  EXPECT_THROW(Sketch({.elements = -1}), ConfigError);
  EXPECT_THROW(Sketch({.elements = 10, .block = 0}), ConfigError);
  EXPECT_THROW(Sketch({.elements = 10, .range = 1 << 20}), ConfigError);
  EXPECT_THROW(Sketch({.elements = std::int64_t{1} << 33}), ConfigError);
  EXPECT_THROW(Sketch({.elements = 10, .ranks = 1000, .groups = 66}), ConfigError);
  Sketch sketch({.elements = 70});
  std::vector<std::uint64_t> index(size(sketch.shape().index_words()));
  index.back() = 64;
  EXPECT_THROW(sketch.read(index), MismatchError);
  EXPECT_THROW(sketch.read(std::span(index).first(3)), ConfigError);
  std::vector<float> rows(size(sketch.shape().values()));
  EXPECT_THROW(sketch.encode<float>(std::vector<float>(69), 0, 0, index, rows), ConfigError);
  EXPECT_THROW(sketch.spread({}, rows), ConfigError);
}

TEST(Bloom, HasEveryKeyAndAboutAsManyOthersAsItsSizeSays) {
  const SketchShape shape = shape_for({.index = SketchSpec::Index::bloom}, 1'000'000, 1, 20'000, 1);
  std::vector<std::uint64_t> words(size(8 * shape.bloom_lines));
  const BloomFilter<std::uint64_t> filter(words.data(), static_cast<std::uint32_t>(shape.bloom_lines),
                                          shape.bloom_bits, KeyHash(3));
  for (std::uint32_t key = 0; key < 20'000; ++key) filter.add(7 * key);
  int others = 0;
  for (std::uint32_t key = 0; key < 1'000'000; ++key) {
    const bool has = filter.may_have(key);
    if (key % 7 == 0 && key < 140'000) {
      ASSERT_TRUE(has);
    } else {
      others += has ? 1 : 0;
    }
  }
  const double rate = false_positives(shape, 20'000);
  EXPECT_NEAR(others / 980'000.0, rate, 0.2 * rate);
}

TEST(Hash, IsTheSameOnEveryProcessorAndForEachKeyAlone) {
  const KeyHash hash(11);
  std::mt19937_64 generator(9);
  std::vector<std::uint32_t> keys(1001);
  for (std::uint32_t& key : keys) key = static_cast<std::uint32_t>(generator());
  std::vector<std::uint16_t> groups(keys.size());
  std::vector<PackedRows> rows(keys.size());
  for (const Kernels* const kernel : {&baseline_kernels(), &kernels()}) {
    kernel->groups(hash, keys.data(), 1001, 77, groups.data());
    kernel->rows(hash, keys.data(), 1001, 21'000, rows.data());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(groups[i], hash.group(keys[i], 77));
      for (int which = 0; which < 3; ++which) {
        ASSERT_EQ(row_of(rows[i], which), hash.row(which, keys[i], 21'000));
        ASSERT_EQ(row_of(rows[i], which) / 21'000, which);
      }
    }
  }
}

TEST(Scan, FindsTheSameOnEveryProcessor) {
  std::mt19937_64 generator(8);
  for (const std::int64_t count : {0, 1, 8, 63, 64, 65, 1000, 4096}) {
    std::vector<float> values = sparse(generator, count, 0.3);
    for (float& value : values) {
      if (generator() % 10 == 0) value = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
    }
    const std::size_t words = size((count + 63) / 64);
    std::vector<std::uint64_t> baseline(words, 5), chosen(words, 6);
    EXPECT_EQ(baseline_kernels().scan(values.data(), count, baseline.data()),
              kernels().scan(values.data(), count, chosen.data()));
    EXPECT_EQ(baseline, chosen);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ((baseline[i / 64] >> (i % 64)) & 1, values[i] != 0 ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace dear::codec::sketch_test
