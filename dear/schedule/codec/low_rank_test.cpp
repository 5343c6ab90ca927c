#include "dear/schedule/codec/low_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/kernels.h"
#include "dear/schedule/codec/testing/payloads.h"

namespace dear::codec::low_rank_test {
namespace {

using codec::testing::bits_of;
using codec::testing::whole_numbers;
using Values = std::vector<float>;

Values uniform(std::size_t count, std::uint64_t seed) {
  Draw random(seed, 0, 99);
  Values values(count);
  for (float& value : values) value = random.uniform();
  return values;
}

struct Factors {
  Values p, q;
};

// One step of ranks with these gradients: the factors after each mean, the same on every rank.
Factors step(LowRank& codec, const std::vector<Values>& gradients) {
  const auto mean = [&](std::int64_t elements, auto encode) {
    Values sum(static_cast<std::size_t>(elements));
    for (const Values& gradient : gradients) {
      Values part(sum.size(), std::numeric_limits<float>::quiet_NaN());
      encode(gradient, part);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i] / static_cast<float>(gradients.size());
    }
    return sum;
  };
  Factors factors;
  factors.p =
      mean(codec.p_elements(), [&](const Values& gradient, Values& p) { codec.encode_p(gradient, p); });
  const Values p = factors.p;
  factors.q = mean(codec.q_elements(), [&](const Values& gradient, Values& q) {
    factors.p = p;
    codec.encode_q(gradient, factors.p, q);
  });
  return factors;
}

Values decoded(LowRank& codec, const Factors& factors, std::size_t elements) {
  Values values(elements, 7.0F);
  codec.decode(factors.p, factors.q, values);
  return values;
}

// M = A B^T of this rank.
Values product(std::int64_t rows, std::int64_t columns, std::int64_t rank, std::uint64_t seed) {
  const Values a = uniform(static_cast<std::size_t>(rows * rank), seed);
  const Values b = uniform(static_cast<std::size_t>(columns * rank), seed + 1);
  Values m(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    for (std::int64_t j = 0; j < rank; ++j) {
      m[static_cast<std::size_t>(i)] += a[static_cast<std::size_t>(i / columns * rank + j)] *
                                        b[static_cast<std::size_t>(i % columns * rank + j)];
    }
  }
  return m;
}

double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

void expect_orthonormal(const Values& p, std::int64_t rows, std::int64_t rank) {
  for (std::int64_t a = 0; a < rank; ++a) {
    for (std::int64_t b = 0; b <= a; ++b) {
      double sum = 0;
      for (std::int64_t i = 0; i < rows; ++i) {
        sum += double{p[static_cast<std::size_t>(a * rows + i)]} *
               double{p[static_cast<std::size_t>(b * rows + i)]};
      }
      ASSERT_NEAR(sum, a == b ? 1 : 0, 1e-6) << a << ' ' << b;
    }
  }
}

// Rows and columns that are zero on every rank come out as zeros, as those of an embedding that no rank used.
TEST(LowRank, KeepsZeroRowsAndColumns) {
  constexpr std::size_t kRows = 24, kColumns = 17;
  LowRank codec(3, 1, {{.range = {0, kRows * kColumns}, .rows = kRows}});
  for (std::uint64_t number = 0; number < 5; ++number) {
    std::vector<Values> gradients{uniform(kRows * kColumns, 2 * number),
                                  uniform(kRows * kColumns, 2 * number + 1)};
    const auto is_zero = [&](std::size_t i) { return (i / kColumns + number) % 3 != 0 || i % kColumns == 5; };
    for (Values& gradient : gradients)
      for (std::size_t i = 0; i < gradient.size(); ++i)
        if (is_zero(i)) gradient[i] = 0;
    const Values mean = decoded(codec, step(codec, gradients), kRows * kColumns);
    for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_EQ(mean[i] == 0, is_zero(i)) << number << " " << i;
  }
}

// The products of whole numbers by their definition: exact, whatever the order.
TEST(Products, AreThoseOfTheirDefinition) {
  for (int round = 0; round < dear::testing::rounds(100); ++round) {
    Draw random(1, round, 0);
    const Factored size{
        .rows = 1 + random.below(12), .columns = 1 + random.below(40), .rank = 1 + random.below(9)};
    const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
    const Values m = whole_numbers(count(size.rows, size.columns), 1),
                 p = whole_numbers(count(size.rows, size.rank), 2),
                 q = whole_numbers(count(size.columns, size.rank), 3);
    Values mq(p.size()), mp(q.size()), pq(m.size()), rest = m;
    for (std::int64_t i = 0; i < size.rows; ++i) {
      for (std::int64_t c = 0; c < size.columns; ++c) {
        for (std::int64_t j = 0; j < size.rank; ++j) {
          const auto at_m = static_cast<std::size_t>(i * size.columns + c),
                     at_p = static_cast<std::size_t>(j * size.rows + i),
                     at_q = static_cast<std::size_t>(j * size.columns + c);
          mq[at_p] += m[at_m] * q[at_q], mp[at_q] += m[at_m] * p[at_p], pq[at_m] += p[at_p] * q[at_q],
              rest[at_m] -= p[at_p] * q[at_q];
        }
      }
    }
    for (const Kernels* kernel : {&kernels(), &baseline_kernels()}) {
      Values found_p(p.size()), found_q(q.size()), found_m(m.size()), found_rest = m;
      kernel->multiply(size, m.data(), q.data(), found_p.data());
      kernel->multiply_transposed(size, m.data(), p.data(), found_q.data());
      kernel->product(size, p.data(), q.data(), found_m.data());
      kernel->subtract_product(size, p.data(), q.data(), found_rest.data());
      ASSERT_EQ(found_p, mq);
      ASSERT_EQ(found_q, mp);
      ASSERT_EQ(found_m, pq);
      ASSERT_EQ(found_rest, rest);
    }
  }
}

TEST(Products, GiveTheSameBitsOnEveryProcessor) {
  const Factored size{.rows = 13, .columns = 2500, .rank = 6};
  const Values m = uniform(13 * 2500, 1), p = uniform(13 * 6, 2), q = uniform(2500 * 6, 3);
  std::set<std::vector<std::uint32_t>> found_p, found_q, found_m, found_rest;
  for (const Kernels* kernel : {&kernels(), &baseline_kernels()}) {
    Values to_p(p.size()), to_q(q.size()), to_m(m.size()), rest = m;
    kernel->multiply(size, m.data(), q.data(), to_p.data());
    kernel->multiply_transposed(size, m.data(), p.data(), to_q.data());
    kernel->product(size, p.data(), q.data(), to_m.data());
    kernel->subtract_product(size, p.data(), q.data(), rest.data());
    found_p.insert(bits_of(to_p));
    found_q.insert(bits_of(to_q));
    found_m.insert(bits_of(to_m));
    found_rest.insert(bits_of(rest));
  }
  EXPECT_EQ(found_p.size() + found_q.size() + found_m.size() + found_rest.size(), 4U);
}

TEST(LowRank, IsExactForMatricesOfItsRank) {
  for (const auto& [rows, columns, rank] :
       {std::tuple{20, 30, 1}, std::tuple{20, 30, 4}, std::tuple{3, 50, 4}, std::tuple{50, 2, 4},
        std::tuple{1, 9, 4}}) {
    const Values m = product(rows, columns, std::min({rows, columns, rank}), 5);
    LowRank codec(rank, 1, {{.range = {0, rows * columns}, .rows = rows}});
    const Factors factors = step(codec, {m});
    expect_orthonormal(factors.p, rows, std::min({rows, columns, rank}));
    EXPECT_LE(largest_difference(decoded(codec, factors, m.size()), m), 2e-5) << rows << 'x' << columns;
  }
}

TEST(LowRank, SendsTheSumOfTheRanks) {
  // Matrices of rank 1, whose mean has the rank 3: as if one rank had had the mean.
  const std::vector<Values> gradients = {product(12, 18, 1, 1), product(12, 18, 1, 3), product(12, 18, 1, 5)};
  Values mean(12 * 18);
  for (const Values& gradient : gradients) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i] / 3;
  }
  LowRank codec(3, 1, {{.range = {0, 12 * 18}, .rows = 12}});
  EXPECT_LE(largest_difference(decoded(codec, step(codec, gradients), mean.size()), mean), 1e-5);
}

// A matrix whose two largest singular values, 8 and 4, stand out: the best one of rank 2 leaves the third, 1.
TEST(LowRank, ComesCloserToTheBestOfItsRankFromStepToStep) {
  Values m(10 * 10);
  for (std::size_t i = 0; i < 10; ++i) m[i * 11] = i == 3 ? 8.0F : i == 7 ? -4.0F : i == 5 ? 1.0F : 0.5F;
  LowRank codec(2, 1, {{.range = {0, 100}, .rows = 10}});
  const auto left = [&] {
    Values rest = m;
    const Factors factors = step(codec, {m});
    codec.decode(factors.p, factors.q, rest);
    double squares = 0;
    for (std::size_t i = 0; i < rest.size(); ++i) squares += std::pow(double{m[i]} - double{rest[i]}, 2);
    return std::sqrt(squares);
  };
  const double first = left();
  for (int i = 0; i < 20; ++i) left();
  const double best = std::sqrt(1 + 7 * 0.25);
  EXPECT_GT(first, best + 0.01);
  EXPECT_NEAR(left(), best, 1e-5);
}

TEST(LowRank, TakesOutWhatItSent) {
  const Values m = uniform(200, 1);
  LowRank codec(2, 1, {{.range = {0, 200}, .rows = 10}});
  const Factors factors = step(codec, {m});
  Values rest = m;
  codec.take_out(factors.p, factors.q, rest);
  const Values travelled = decoded(codec, factors, 200);
  for (std::size_t i = 0; i < 200; ++i) ASSERT_EQ(rest[i], m[i] - travelled[i]);
}

TEST(LowRank, OutlivesGradientsOfSmallerRank) {
  LowRank codec(3, 1, {{.range = {0, 120}, .rows = 10}});
  for (const std::int64_t rank : {1, 3, 2, 1, 2, 3}) {
    const Values m = product(10, 12, rank, static_cast<std::uint64_t>(rank));
    for (int time = 0; time < 2; ++time) {
      const Factors factors = step(codec, {m});
      expect_orthonormal(factors.p, 10, 3);
      const Values found = decoded(codec, factors, 120);
      // All that is new is found in the second step at the latest.
      if (time == 1) {
        EXPECT_LE(largest_difference(found, m), 2e-5) << rank;
      }
    }
  }
}

TEST(LowRank, KeepsItsStateOverAGradientOfZero) {
  LowRank codec(3, 1, {{.range = {0, 120}, .rows = 10}});
  const Values m = product(10, 12, 3, 1), zeros(120);
  decoded(codec, step(codec, {m}), 120);
  const Values before(codec.state().begin(), codec.state().end());
  const Factors factors = step(codec, {zeros});
  expect_orthonormal(factors.p, 10, 3);
  EXPECT_EQ(decoded(codec, factors, 120), zeros);
  EXPECT_EQ(Values(codec.state().begin(), codec.state().end()), before);
}

TEST(LowRank, KeepsTheScaleOfSmallAndLargeGradients) {
  for (const float scale : {1e-30F, 1e30F}) {
    Values m = product(10, 12, 2, 1);
    for (float& value : m) value *= scale;
    LowRank codec(2, 1, {{.range = {0, 120}, .rows = 10}});
    EXPECT_LE(largest_difference(decoded(codec, step(codec, {m}), 120), m), 1e-5 * double{scale});
  }
}

TEST(LowRank, ShowsNan) {
  Values m = uniform(120, 1);
  m[30] = std::numeric_limits<float>::quiet_NaN();
  LowRank codec(2, 1, {{.range = {0, 120}, .rows = 10}});
  EXPECT_TRUE(std::isnan(decoded(codec, step(codec, {m}), 120)[0]));
  codec.reset();
  EXPECT_FALSE(std::isnan(decoded(codec, step(codec, {uniform(120, 1)}), 120)[0]));
}

TEST(LowRank, TreatsEachMatrixAsIfItWereAlone) {
  const std::vector<Matrix> matrices = {{.range = {5, 65}, .rows = 6, .key = 1},
                                        {.range = {65, 65}, .rows = 3, .key = 2},
                                        {.range = {70, 90}, .rows = 1, .key = 3}};
  const Values values = uniform(100, 1);
  LowRank both(2, 1, matrices);
  EXPECT_EQ(both.p_elements(), 6 * 2 + 1);
  EXPECT_EQ(both.q_elements(), 10 * 2 + 20);
  const Values together = decoded(both, step(both, {values}), 100);
  Values apart(100, 7.0F);
  for (const Matrix& matrix : matrices) {
    LowRank alone(2, 1, {matrix});
    const Factors factors = step(alone, {values});
    alone.decode(factors.p, factors.q, apart);
  }
  EXPECT_EQ(together, apart);
  EXPECT_EQ(together[4], 7);
  EXPECT_EQ(together[67], 7);
}

TEST(LowRank, ContinuesWithTheSameBitsFromItsState) {
  const std::vector<Matrix> matrices = {{.range = {0, 60}, .rows = 6, .key = 1},
                                        {.range = {60, 100}, .rows = 8, .key = 2}};
  LowRank first(2, 1, matrices);
  decoded(first, step(first, {uniform(100, 1)}), 100);
  LowRank second(2, 1, matrices);
  EXPECT_NE(Values(first.state().begin(), first.state().end()),
            Values(second.state().begin(), second.state().end()));
  std::copy(first.state().begin(), first.state().end(), second.state().begin());
  const Values next = uniform(100, 2);
  EXPECT_EQ(decoded(second, step(second, {next}), 100), decoded(first, step(first, {next}), 100));
  EXPECT_EQ(first.state_of(0), (Range{0, 20}));
  EXPECT_EQ(first.state_of(1), (Range{20, 30}));
}

TEST(LowRank, RefusesWhatIsNoMatrix) {
  EXPECT_THROW(LowRank(0, 1, {}), ConfigError);
  EXPECT_THROW(LowRank(1, 1, {{.range = {0, 10}, .rows = 3}}), ConfigError);
  EXPECT_THROW(LowRank(1, 1, {{.range = {0, 10}, .rows = 0}}), ConfigError);
  EXPECT_THROW(LowRank(1, 1, {{.range = {0, 10}, .rows = 2}, {.range = {9, 12}, .rows = 3}}), ConfigError);
}

}  // namespace
}  // namespace dear::codec::low_rank_test
