#include "dear/comm/two_level/two_level.h"

#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/group/testing/chunk_rows.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::backends::two_level_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Hosts in name: threads that share memory in groups, and have channels to all.
std::vector<std::unique_ptr<Backend>> make_threads(const TwoLevelShape& shape, bool reproducible = false) {
  auto channels = channels::testing::make_thread_channels(shape.hosts * shape.ranks_per_host);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int host = 0; host < shape.hosts; ++host) {
    for (auto& shared : testing::make_shared_memory_threads(shape.ranks_per_host)) {
      backends.push_back(make_two_level(std::move(shared), std::move(channels[backends.size()]),
                                        {.shape = shape, .reproducible = reproducible}));
    }
  }
  return backends;
}

class TwoLevels : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  const TwoLevelShape shape_{.hosts = std::get<0>(GetParam()), .ranks_per_host = std::get<1>(GetParam())};
};

TEST_P(TwoLevels, CarryEverything) {
  const auto reports = comm::testing::run_on_threads(make_threads(shape_), {}, [](Group& group) {
    comm::testing::check_group(group, {.order = comm::testing::Order::fixed});
    comm::testing::check_parts(group);
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST_P(TwoLevels, AddInTheOrderOfRanksWhereAskedTo) {
  const auto reports = comm::testing::run_on_threads(make_threads(shape_, true), {}, [](Group& group) {
    comm::testing::check_reductions(group, {.counts = {5003}});
    comm::testing::check_rounding(group);
  });
  EXPECT_THAT(reports, Each("ok"));
}

INSTANTIATE_TEST_SUITE_P(Grids, TwoLevels,
                         ::testing::Values(std::tuple(2, 2), std::tuple(3, 2), std::tuple(2, 3)),
                         [](const auto& test) {
                           return fmt::format("{}x{}", std::get<0>(test.param), std::get<1>(test.param));
                         });

TEST(TwoLevel, SaysWhatItIs) {
  const auto backends = make_threads({.hosts = 2, .ranks_per_host = 2});
  EXPECT_THAT(backends[3]->description(),
              AllOf(HasSubstr("grid 2x2"), HasSubstr("shm, 2 ranks"), HasSubstr("programs over")));
  EXPECT_EQ(backends[3]->rank(), 3);
}

TEST(TwoLevel, AFailureReachesEveryHost) {
  const auto reports =
      comm::testing::run_on_threads(make_threads({.hosts = 2, .ranks_per_host = 2}), {}, [](Group& group) {
        group.barrier().wait();
        if (group.rank() == 3) group.abort("the disk is full");
        group.barrier().wait();
        group.barrier().wait();
      });
  EXPECT_THAT(reports, Each(HasSubstr("the disk is full")));
}

TEST(TwoLevel, RanksThatDifferFailOnEveryHost) {
  const auto reports =
      comm::testing::run_on_threads(make_threads({.hosts = 2, .ranks_per_host = 2}), {}, [](Group& group) {
        const Buffer buffer = group.allocate(4000);
        group.all_reduce({.buffer = buffer, .count = group.rank() == 2 ? 999 : 1000}, Reduction::sum).wait();
        group.barrier().wait();
      });
  EXPECT_THAT(reports, Each(HasSubstr("999")));
}

TEST(TwoLevel, ALieAboutRowsReachesEveryHost) {
  EXPECT_THAT(
      comm::testing::run_on_threads(make_threads({.hosts = 2, .ranks_per_host = 2}), {},
                                    [](Group& group) { comm::testing::lie_about_rows(group, 3, 0, 5); }),
      Each(HasSubstr("rank 3 says that it sends 5 rows of chunk 1 to rank 0")));
}

TEST(TwoLevelShapes, AreGridsOfSeveralHosts) {
  const auto shape = two_level_shape({0, 0, 1, 1, 2, 2});
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->hosts, 3);
  EXPECT_EQ(shape->ranks_per_host, 2);
  for (const std::vector<int>& none : std::vector<std::vector<int>>{
           {}, {0}, {0, 0}, {0, 1, 2}, {0, 1, 0, 1}, {0, 0, 1}, {0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 0, 0}}) {
    EXPECT_FALSE(two_level_shape(none)) << ::testing::PrintToString(none);
  }
}

TEST(TwoLevelShapes, HaveAPlaceForEachRank) {
  auto channels = channels::testing::make_thread_channels(4);
  auto shared = testing::make_shared_memory_threads(2);
  EXPECT_THROW(make_two_level(std::move(shared[1]), std::move(channels[2]),
                              {.shape = {.hosts = 2, .ranks_per_host = 2}}),
               ConfigError);
}

}  // namespace
}  // namespace dear::backends::two_level_test
