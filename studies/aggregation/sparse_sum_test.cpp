#include "studies/aggregation/sparse_sum.h"

#include "studies/aggregation/generated.h"
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::studies::aggregation::sparse_sum_test {
namespace {

using backends::testing::make_shm_threads;
using comm::testing::run_on_threads;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::int64_t kElements = 50'003;
constexpr double kDensity = 0.05;

std::vector<std::string> with_aggregator(int workers, const std::function<void(Worker&)>& body) {
  return run_on_threads(make_shm_threads(workers + 1), {}, [&](Group& group) {
    if (group.rank() == workers) {
      Aggregator aggregator(group);
      while (aggregator.serve()) {
      }
      return;
    }
    Worker worker(group);
    body(worker);
    worker.finish();
  });
}

std::vector<float> gradient_of(const Worker& worker, int rank, std::int64_t step, bool integers = false) {
  std::vector<float> values(kElements);
  generate({.density = kDensity, .workers = worker.workers(), .integers = integers}, rank, step, values);
  return values;
}

// The sum of all workers' gradients, added up here.
std::vector<double> sum_of_all(const Worker& worker, std::int64_t step, bool integers = false) {
  std::vector<double> sums(kElements);
  for (int rank = 0; rank < worker.workers(); ++rank) {
    const std::vector<float> values = gradient_of(worker, rank, step, integers);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(values[i]);
  }
  return sums;
}

void expect_near(const std::vector<float>& sums, const std::vector<double>& wanted) {
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    error = std::max(error, std::abs(static_cast<double>(sums[i]) - wanted[i]));
  }
  EXPECT_LE(error, 1e-5 * largest);
}

SparseSumOptions options_of(const SketchSpec& sketch) {
  return {.elements = kElements, .keys = kDensity * static_cast<double>(kElements), .sketch = sketch};
}

TEST(SparseSum, IsNearTheSumInFp32ForEveryBlockAndIndex) {
  for (const SketchSpec& spec :
       {SketchSpec{.block = 1}, SketchSpec{.room = 1.5, .block = 1, .index = SketchSpec::Index::bloom},
        SketchSpec{.block = 4}}) {
    EXPECT_THAT(with_aggregator(3,
                                [&](Worker& worker) {
                                  SparseSumOptions options = options_of(spec);
                                  options.keys *= static_cast<double>(spec.block);
                                  SparseSum sparse(worker, options);
                                  std::vector<float> sums(kElements);
                                  for (std::int64_t step = 0; step < 3; ++step) {
                                    const Summed summed =
                                        sparse.add(gradient_of(worker, worker.rank(), step), sums);
                                    EXPECT_EQ(name_of(summed.outcome), "sketch");
                                    EXPECT_GT(summed.rounds, 1);
                                    expect_near(sums, sum_of_all(worker, step));
                                  }
                                }),
                Each("ok"));
  }
}

// The first exact step has no scale yet.
TEST(SparseSum, IsTheDenseSumBitForBitWhereSumsAreExact) {
  for (const int workers : {1, 2, 4}) {
    EXPECT_THAT(
        with_aggregator(workers,
                        [&](Worker& worker) {
                          SparseSum sparse(worker, options_of({.block = 1, .exact = true}));
                          std::vector<float> sums(kElements), dense(kElements);
                          for (std::int64_t step = 0; step < 4; ++step) {
                            const std::vector<float> mine = gradient_of(worker, worker.rank(), step, true);
                            const Summed summed = sparse.add(mine, sums);
                            add_dense(worker, mine, dense);
                            EXPECT_EQ(summed.outcome, step == 0 ? Outcome::overflow : Outcome::sketch);
                            EXPECT_TRUE(sums == dense);
                            const std::vector<double> wanted = sum_of_all(worker, step, true);
                            EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), sums.begin(), sums.end()));
                          }
                        }),
        Each("ok"));
  }
}

// Spikes, denormals, what is near the largest number, what cancels: exact sums are rounded once, others are
// near the dense ones, or the outcome says that they travelled dense.
TEST(SparseSum, IsTheSumOrSaysThatItWentDense) {
  constexpr std::int64_t kFew = 600;
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const bool exact : {true, false}) {
    EXPECT_THAT(with_aggregator(
                    2,
                    [&](Worker& worker) {
                      SparseSum sparse(
                          worker,
                          {.elements = kFew, .keys = 60, .sketch = {.block = exact ? 5 : 1, .exact = exact}});
                      std::vector<float> sums(kFew), one(kFew), mine(kFew);
                      std::set<std::string_view> outcomes;
                      for (int step = 0; step < 500; ++step) {
                        std::vector<double> wanted(kFew);
                        for (int rank = 0; rank < 2; ++rank) {
                          std::minstd_rand random(static_cast<std::uint32_t>(1000 * step + rank + 1));
                          const float scale = step % 7 == 0   ? 1e12F
                                              : step % 7 == 1 ? 1e-42F
                                              : step % 7 == 2 ? 1e37F
                                                              : 1;
                          for (std::size_t i = 0; i < one.size(); ++i) {
                            one[i] = random() % 20 == 0 ? static_cast<float>(random() % 1024) / 512 - 1 : 0;
                            if (random() % 3 == 0) one[i] *= scale;
                          }
                          if (step % 50 == 9) one[3] = (rank == 0 ? 1 : -0.5F) * kLargest;
                          if (step % 50 == 10) one[3] = rank == 0 ? 0.7F : -0.7F;
                          for (std::size_t i = 0; i < one.size(); ++i)
                            wanted[i] += static_cast<double>(one[i]);
                          if (rank == worker.rank()) mine = one;
                        }
                        const Summed summed = sparse.add(mine, sums);
                        outcomes.insert(name_of(summed.outcome));
                        if (!exact && summed.outcome == Outcome::sketch) {
                          expect_near(sums, wanted);
                          continue;
                        }
                        for (std::size_t i = 0; i < one.size(); ++i)
                          ASSERT_EQ(sums[i], static_cast<float>(wanted[i])) << step;
                      }
                      EXPECT_TRUE(outcomes.contains("sketch"));
                      EXPECT_TRUE(outcomes.contains("overflow"));
                      EXPECT_EQ(outcomes.contains("inexact"), exact);
                    }),
                Each("ok"));
  }
}

TEST(SparseSum, OfZerosIsZero) {
  EXPECT_THAT(with_aggregator(2,
                              [](Worker& worker) {
                                SparseSum sparse(worker, options_of({.block = 1}));
                                std::vector<float> sums(kElements, 7.0F);
                                const Summed summed = sparse.add(std::vector<float>(kElements), sums);
                                EXPECT_EQ(summed.outcome, Outcome::sketch);
                                EXPECT_EQ(summed.keys, 0);
                                EXPECT_THAT(sums, Each(0.0F));
                              }),
              Each("ok"));
}

TEST(SparseSum, GoesDenseOnAllWorkersWhereOneHasNaN) {
  for (const bool exact : {false, true}) {
    EXPECT_THAT(with_aggregator(3,
                                [&](Worker& worker) {
                                  SparseSum sparse(worker, options_of({.block = 1, .exact = exact}));
                                  std::vector<float> mine = gradient_of(worker, worker.rank(), 0);
                                  if (worker.rank() == 1) mine[77] = std::numeric_limits<float>::quiet_NaN();
                                  std::vector<float> sums(kElements);
                                  const Summed summed = sparse.add(mine, sums);
                                  EXPECT_EQ(name_of(summed.outcome), "not finite");
                                  EXPECT_THAT(summed.not_finite, ElementsAre(1));
                                  EXPECT_TRUE(std::isnan(sums[77]));
                                  sums[77] = 0;
                                  std::vector<double> wanted = sum_of_all(worker, 0);
                                  wanted[77] = 0;
                                  expect_near(sums, wanted);
                                }),
                Each("ok"));
  }
}

// From far fewer rows than keys, over a few more than keys, to enough.
TEST(SparseSum, GoesDenseAfterASketchThatIsTooSmall) {
  EXPECT_THAT(with_aggregator(2,
                              [](Worker& worker) {
                                std::set<std::string_view> outcomes;
                                const std::vector<float> mine = gradient_of(worker, worker.rank(), 0);
                                const std::vector<double> wanted = sum_of_all(worker, 0);
                                for (int percent = 80; percent <= 95; ++percent) {
                                  SparseSumOptions options = options_of({.room = 1.2, .block = 1});
                                  options.keys *= 0.01 * percent;
                                  SparseSum sparse(worker, options);
                                  std::vector<float> sums(kElements);
                                  outcomes.insert(name_of(sparse.add(mine, sums).outcome));
                                  expect_near(sums, wanted);
                                }
                                EXPECT_THAT(outcomes, ElementsAre("entangled", "sketch", "too many keys"));
                              }),
              Each("ok"));
}

TEST(SparseSum, GrowsUntilASketchHoldsTheSum) {
  EXPECT_THAT(with_aggregator(2,
                              [](Worker& worker) {
                                SparseSumOptions options = options_of({.block = 1});
                                options.keys = 10;
                                SparseSum sparse(worker, options);
                                std::vector<float> sums(kElements);
                                const std::vector<float> mine = gradient_of(worker, worker.rank(), 0);
                                EXPECT_EQ(sparse.add(mine, sums).outcome, Outcome::too_many_keys);
                                EXPECT_EQ(sparse.add(mine, sums).outcome, Outcome::sketch);
                                expect_near(sums, sum_of_all(worker, 0));
                              }),
              Each("ok"));
}

// Two keys in three rows.
TEST(SparseSum, TriesOtherRowsForKeysThatMeetInAllOfTheirs) {
  EXPECT_THAT(with_aggregator(1,
                              [](Worker& worker) {
                                SparseSum sparse(worker, {.elements = 2, .sketch = {.block = 1}});
                                std::vector<float> sums(2);
                                const std::vector<float> mine{3, 4};
                                EXPECT_EQ(sparse.add(mine, sums).outcome, Outcome::entangled);
                                EXPECT_THAT(sums, ElementsAre(3, 4));
                                for (int step = 0; step < 8; ++step) sparse.add(mine, sums);
                                EXPECT_EQ(sparse.add(mine, sums).outcome, Outcome::sketch);
                                EXPECT_THAT(sums, ElementsAre(3, 4));
                              }),
              Each("ok"));
}

TEST(SparseSum, NamesTheWorkerWithAnotherShape) {
  const std::vector<std::string> reports = with_aggregator(3, [](Worker& worker) {
    SparseSumOptions options = options_of({.block = 1});
    if (worker.rank() == 2) options.seed = 5;
    SparseSum sparse(worker, options);
    std::vector<float> sums(kElements);
    sparse.add(std::vector<float>(kElements), sums);
  });
  EXPECT_THAT(reports, Each(::testing::HasSubstr("worker rank 2")));
}

TEST(SparseSum, OfAVectorOfAnotherLengthEndsAllRanks) {
  const std::vector<std::string> reports = with_aggregator(2, [](Worker& worker) {
    SparseSum sparse(worker, options_of({.block = 1}));
    std::vector<float> sums(kElements);
    sparse.add(std::vector<float>(worker.rank() == 1 ? 10 : kElements), sums);
  });
  EXPECT_THAT(reports, Each(::testing::HasSubstr("was given 10")));
}

}  // namespace
}  // namespace dear::studies::aggregation::sparse_sum_test
