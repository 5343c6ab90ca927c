#include "dear/base/launch/cores.h"

#include <cstdlib>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::launch::cores_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Cores, RanksHavePartsOfTheirOwn) {
  const std::vector<int> cores = {0, 1, 2, 3, 8, 9, 10, 11};
  EXPECT_THAT(cores_of_rank(cores, 3, 0), ElementsAre(0, 1));
  EXPECT_THAT(cores_of_rank(cores, 3, 1), ElementsAre(2, 3, 8));
  EXPECT_THAT(cores_of_rank(cores, 3, 2), ElementsAre(9, 10, 11));
  EXPECT_EQ(cores_of_rank(cores, 1, 0), cores);
}

TEST(Cores, TogetherThePartsAreAllOfThemOnce) {
  std::vector<int> cores(7);
  std::iota(cores.begin(), cores.end(), 4);
  for (int ranks = 1; ranks <= 7; ++ranks) {
    std::vector<int> together;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int> part = cores_of_rank(cores, ranks, rank);
      together.insert(together.end(), part.begin(), part.end());
    }
    EXPECT_EQ(together, cores) << ranks;
  }
}

TEST(Cores, ManyRanksShareThemEvenly) {
  const std::vector<int> cores = {5, 6};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(cores_of_rank(cores, 4, rank), ElementsAre(rank < 2 ? 5 : 6));
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(cores_of_rank(cores, 3, rank).size(), 1);
  }
}

TEST(Cores, AThreadStaysWhereItIsBound) {
  const std::vector<int> all = usable_cores();
  ASSERT_FALSE(all.empty());
  std::thread([&] {
    ASSERT_EQ(bind_to({all.back()}), 0);
    EXPECT_THAT(usable_cores(), ElementsAre(all.back()));
  }).join();
  EXPECT_EQ(usable_cores(), all);
}

TEST(Cores, ThreadsOfTheEnvironment) {
  const auto with = [](const char* value) {
    ::setenv("OMP_NUM_THREADS", value, 1);
    return threads_of_environment();
  };
  EXPECT_EQ(with("3"), 3);
  EXPECT_EQ(with("4,2"), 4);
  EXPECT_EQ(with(""), std::nullopt);
  for (const char* bad : {"0", "-1", "two", "3x", ",2", "99999999999", "1025"}) {
    EXPECT_THAT([&] { with(bad); }, ThrowsMessage<ConfigError>(HasSubstr("OMP_NUM_THREADS"))) << bad;
  }
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(threads_of_environment(), std::nullopt);
}

}  // namespace
}  // namespace dear::launch::cores_test
