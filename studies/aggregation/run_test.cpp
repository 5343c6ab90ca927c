#include "studies/aggregation/run.h"

#include "studies/aggregation/generated.h"
#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::studies::aggregation::run_test {
namespace {

using backends::testing::make_shm_threads;
using comm::testing::run_on_threads;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(Generated, HasTheDensityOfTheUnion) {
  constexpr std::size_t kElements = 100'000;
  std::vector<bool> any(kElements);
  std::vector<float> values(kElements);
  for (int worker = 0; worker < 3; ++worker) {
    generate({.density = 0.1, .workers = 3, .integers = worker == 1}, worker, 4, values);
    for (std::size_t i = 0; i < kElements; ++i) any[i] = any[i] || values[i] != 0;
    const auto own = std::count_if(values.begin(), values.end(), [](float value) { return value != 0; });
    EXPECT_NEAR(static_cast<double>(own), 0.1 * 2 / 3 * kElements, 500);
  }
  EXPECT_NEAR(static_cast<double>(std::count(any.begin(), any.end(), true)), 0.1 * kElements, 500);
}

TEST(Run, MeasuresBothWaysOfEveryStepAndSendsLessAsSketches) {
  for (const bool exact : {false, true}) {
    EXPECT_THAT(run_on_threads(make_shm_threads(4), {},
                               [&](Group& group) {
                                 const std::optional<RunResult> result =
                                     run(group, {.elements = 40'000, .steps = 3, .exact = exact});
                                 ASSERT_EQ(result.has_value(), group.rank() < 3);
                                 if (!result) return;
                                 EXPECT_EQ(result->sketch.seconds.size(), 3U);
                                 EXPECT_EQ(result->dense.seconds.size(), 3U);
                                 EXPECT_EQ(result->dense_exchanges, 0);
                                 EXPECT_GT(result->peeling_rounds, 1);
                                 EXPECT_NEAR(static_cast<double>(result->keys), 2000, 300);
                                 EXPECT_LT(result->sketch.traffic.sent, result->dense.traffic.sent / 3);
                                 EXPECT_EQ(result->dense.traffic.received, 3 * 4 * 40'000);
                                 if (exact) {
                                   EXPECT_EQ(result->largest_error, 0);
                                 }
                               }),
                Each("ok"));
  }
}

TEST(Run, OfOneWorkerAndOfOneElement) {
  EXPECT_THAT(run_on_threads(make_shm_threads(2), {},
                             [](Group& group) { run(group, {.elements = 1, .density = 1, .steps = 2}); }),
              Each("ok"));
}

TEST(Run, RefusesOnEveryRankWhatItCannotMeasure) {
  EXPECT_THAT(run_on_threads(make_shm_threads(2), {},
                             [](Group& group) { run(group, {.elements = 10, .density = 0}); }),
              Each(HasSubstr("ConfigError: density")));
  EXPECT_THAT(run_on_threads(make_shm_threads(1), {}, [](Group& group) { run(group, {}); }),
              Each(HasSubstr("at least one worker")));
}

}  // namespace
}  // namespace dear::studies::aggregation::run_test
