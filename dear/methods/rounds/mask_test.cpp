#include "dear/methods/rounds/mask.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/rounds/quadratic.h"
#include "dear/methods/rounds/runs_in_test.h"

namespace dear::methods::rounds::mask_test {
namespace {

using Matrix = std::vector<std::vector<bool>>;  // [coordinate][column]

// The template as TAMUNA's authors write it down: a walk over all columns, or, with fewer ones than columns,
// a one in each column as far as they go.
Matrix template_of(int dimension, int columns, int owners) {
  Matrix ones(index_of(dimension), std::vector<bool>(index_of(columns)));
  if (dimension * owners >= columns) {
    int column = 0;
    for (int row = 0; row < dimension; ++row)
      for (int one = 0; one < owners; ++one) {
        ones[index_of(row)][index_of(column)] = true;
        column = (column + 1) % columns;
      }
  } else {
    for (int column = 0; column < dimension * owners; ++column)
      ones[index_of(column % dimension)][index_of(column)] = true;
  }
  return ones;
}

TEST(Mask, IsTheTemplateAndDealsEqually) {
  for (const int dimension : {1, 2, 3, 7, 12, 31})
    for (int columns = 1; columns <= 13; ++columns)
      for (int owners = 1; owners <= columns; ++owners) {
        SCOPED_TRACE(::testing::Message() << dimension << " " << columns << " " << owners);
        const Mask mask(dimension, columns, owners);
        const Matrix ones = template_of(dimension, columns, owners);
        for (int row = 0; row < dimension; ++row) {
          int here = 0;
          for (int column = 0; column < columns; ++column) {
            ASSERT_EQ(mask.owns(column, row), ones[index_of(row)][index_of(column)]) << row << " " << column;
            here += mask.owns(column, row) ? 1 : 0;
          }
          ASSERT_EQ(here, owners);
        }
        for (int column = 0; column < columns; ++column) {
          const std::int64_t all = mask.count(column, {0, dimension});
          ASSERT_GE(all, dimension * owners / columns);
          ASSERT_LE(all, (dimension * owners + columns - 1) / columns);
        }
      }
}

TEST(Mask, CountsAndVisitsWhatItOwnsInEveryRange) {
  for (const int dimension : {1, 5, 14})
    for (const int columns : {1, 3, 8, 20})
      for (int owners = 1; owners <= columns; ++owners) {
        const Mask mask(dimension, columns, owners);
        for (int column = 0; column < columns; ++column)
          for (std::int64_t begin = 0; begin <= dimension; ++begin)
            for (std::int64_t end = begin; end <= dimension; ++end) {
              std::vector<std::int64_t> expected, visited;
              for (std::int64_t row = begin; row < end; ++row)
                if (mask.owns(column, row)) expected.push_back(row);
              mask.each(column, {begin, end}, [&](std::int64_t row) { visited.push_back(row); });
              ASSERT_EQ(visited, expected);
              ASSERT_EQ(mask.count(column, {begin, end}), std::ssize(expected));
            }
      }
}

TEST(Mask, RefusesWhatCannotBe) {
  EXPECT_THROW(Mask(0, 2, 2), ConfigError);
  EXPECT_THROW(Mask(3, 2, 3), ConfigError);
  EXPECT_THROW(Mask(3, 2, 0), ConfigError);
}

// Chi-square of `counts` against equal frequencies.
double chi_square(const std::map<std::set<int>, int>& counts, double cells, int drawn) {
  double sum = 0;
  for (const auto& [set, count] : counts) sum += (count - drawn / cells) * (count - drawn / cells);
  sum += (cells - static_cast<double>(counts.size())) * (drawn / cells) * (drawn / cells);
  return sum / (drawn / cells);
}

// The theorem needs this: of 6 clients, each pair of owners of a coordinate is as likely.
TEST(Mask, OwnersOfACoordinateAreAUniformSubsetOfAllClients) {
  constexpr int kClients = 6, kDrawn = 30'000;
  constexpr double kMost = 42.6;  // chi-square with 14 degrees of freedom exceeds it once in 10,000 times
  const auto problem = make_quadratic({.clients = kClients, .dimension = 7});
  const Settings settings = testing::settings_of("tamuna", *problem, {.cohort = 5, .owners = 2, .seed = 3});
  const Mask mask(7, 5, 2);
  for (const std::int64_t coordinate : {0, 4}) {
    std::map<std::set<int>, int> counts;
    for (int number = 0; number < kDrawn; ++number) {
      std::set<int> owners;
      for (const Sender& sender : draw_round(settings, kClients, number).senders)
        if (mask.owns(sender.column, coordinate)) owners.insert(sender.client);
      ++counts[owners];
    }
    EXPECT_LT(chi_square(counts, 15, kDrawn), kMost) << coordinate;
  }
}

TEST(Round, IsTheSameForAllRanksAndAnotherForAnotherSeed) {
  const auto problem = make_quadratic({.clients = 20});
  const Settings settings =
      testing::settings_of("tamuna", *problem, {.cohort = 7, .probability = 0.2, .seed = 5});
  Settings other = settings;
  other.seed = 6;
  int different = 0;
  std::set<std::int64_t> steps;
  for (int number = 0; number < 20; ++number) {
    const Round round = draw_round(settings, 20, number);
    EXPECT_EQ(round.senders, draw_round(settings, 20, number).senders);
    ASSERT_EQ(round.senders.size(), 7U);
    std::set<int> columns;
    for (const Sender& sender : round.senders) columns.insert(sender.column);
    EXPECT_EQ(columns.size(), 7U);
    EXPECT_TRUE(std::is_sorted(round.senders.begin(), round.senders.end(),
                               [](const Sender& a, const Sender& b) { return a.client < b.client; }));
    different += draw_round(other, 20, number).senders == round.senders ? 0 : 1;
    steps.insert(round.steps);
  }
  EXPECT_EQ(different, 20);
  EXPECT_GT(steps.size(), 3U);
}

// The mean of a geometric number is 1 / p, its variance (1 - p) / p^2.
TEST(Round, NumbersOfStepsAreGeometric) {
  const auto problem = make_quadratic({});
  const Settings settings = testing::settings_of("scaffnew", *problem, {.probability = 0.2});
  constexpr int kDrawn = 20'000;
  double sum = 0, squares = 0, ones = 0;
  for (int number = 0; number < kDrawn; ++number) {
    const auto steps = static_cast<double>(draw_round(settings, 10, number).steps);
    sum += steps;
    squares += steps * steps;
    ones += steps == 1 ? 1 : 0;
  }
  const double mean = sum / kDrawn;
  EXPECT_NEAR(mean, 5, 0.15);
  EXPECT_NEAR(squares / kDrawn - mean * mean, 20, 1.5);
  EXPECT_NEAR(ones / kDrawn, 0.2, 0.015);
}

TEST(Round, AnAbsentClientIsReplacedByTheNext) {
  const auto problem = make_quadratic({.clients = 8});
  Settings settings = testing::settings_of("tamuna", *problem, {.cohort = 4, .seed = 2});
  settings.absence = 0.4;
  int whole = 0, empty = 0;
  for (int number = 0; number < 300; ++number) {
    const std::size_t senders = draw_round(settings, 8, number).senders.size();
    whole += senders == 4 ? 1 : 0;
    empty += senders == 0 ? 1 : 0;
  }
  EXPECT_EQ(whole + empty, 300) << "a mask has all its columns, or there is no round";
  EXPECT_GT(whole, 200);
  EXPECT_GT(empty, 10);
  settings = testing::settings_of("fedavg", *problem, {.cohort = 4, .every = 3, .absence = 0.7});
  std::set<std::size_t> sizes;
  for (int number = 0; number < 300; ++number) sizes.insert(draw_round(settings, 8, number).senders.size());
  EXPECT_EQ(sizes, (std::set<std::size_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace dear::methods::rounds::mask_test
