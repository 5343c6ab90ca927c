#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/grid/grid_backend.h"
#include "dear/comm/grid/grid_in_test.h"
#include "dear/comm/grid/measure.h"
#include "dear/comm/grid/start_up_exchange.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"
#include "dear/platform/cost/ring.h"

namespace dear::grid {
namespace {

using grid_in_test::soon;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Talk, GathersTextsAndNumbersOfAllRanks) {
  auto wholes = backends::testing::make_shm_threads(3);
  EXPECT_THAT(backends::testing::run_on_threads(
                  3,
                  [&](int rank) {
                    Backend& whole = *wholes[static_cast<std::size_t>(rank)];
                    const std::string text(static_cast<std::size_t>(rank) * 300, 'x');
                    EXPECT_THAT(gather_texts(whole, text, soon()),
                                ElementsAre("", std::string(300, 'x'), std::string(600, 'x')));
                    const std::vector<std::vector<double>> numbers =
                        gather_numbers(whole, std::vector<double>(9, rank + 0.5), soon());
                    ASSERT_EQ(numbers.size(), 3U);
                    EXPECT_THAT(numbers[2], AllOf(::testing::SizeIs(9), Each(2.5)));
                    EXPECT_THROW(gather_texts(whole, std::string(1001, 'x'), soon()), ConfigError);
                  }),
              Each("ok"));
}

TEST(MeasureLines, GivesEveryRankTheSameUsableNetwork) {
  const algorithm::Grid grid{{2, 1, 2}};
  auto wholes = backends::testing::make_shm_threads(4);
  std::vector<std::string> descriptions(4);
  EXPECT_THAT(
      backends::testing::run_on_threads(4,
                                        [&](int rank) {
                                          auto& whole = wholes[static_cast<std::size_t>(rank)];
                                          const auto lines = split_into_lines(*whole, grid, soon());
                                          const auto network = measure_lines(*whole, lines, grid, soon());
                                          EXPECT_EQ(network.grid, grid);
                                          EXPECT_GT(network.bytes_per_second(0), 0);
                                          EXPECT_GT(network.bytes_per_second(2), 0);
                                          EXPECT_EQ(network.lanes.front(), 0);
                                          descriptions[static_cast<std::size_t>(rank)] = describe(network);
                                        }),
      Each("ok"));
  EXPECT_THAT(descriptions,
              Each(AllOf(HasSubstr("dimension 0"), HasSubstr("dimension 2"), HasSubstr("MB/s"))));
  EXPECT_THAT(descriptions, Each(descriptions.front()));
}

TEST(LinkOfLine, GivesTheTimesOfTheNetwork) {
  const cost::ChunkNetwork network{.grid = {{4, 1}},
                                   .algorithms = {"ring", "ring"},
                                   .lanes = {0, 0},
                                   .lines = {{.start_up_seconds = 6e-5, .seconds_per_byte = 3e-9}, {}}};
  const Link link = link_of_line(network, 0);
  EXPECT_NEAR(cost::ring_reduce_scatter_seconds(link, 4, 1'000'000), network.phase_seconds(0, 1e6), 1e-12);
  EXPECT_EQ(link_of_line(network, 1), Link{});
}

}  // namespace
}  // namespace dear::grid
