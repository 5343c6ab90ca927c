#include "dear/collective/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/backends/shm/shm.h"
#include "dear/backends/testing/ranks.h"
#include "dear/collective/single.h"

namespace dear::exchange_test {
namespace {

using backends::make_shm_threads;
using collective::testing::run_on_threads;
using ::testing::Each;
using ::testing::ElementsAre;

TEST(AllGatherText, GivesEveryRanksTextByRank) {
  const std::string binary("a\0b", 3);
  const std::string long_text(5000, 'x');
  const auto reports = run_on_threads(make_shm_threads(4), {}, [&](Group& group) {
    const std::vector<std::string> mine{"", binary, long_text, "last"};
    EXPECT_THAT(all_gather_text(group, mine[static_cast<std::size_t>(group.rank())]),
                ElementsAre("", binary, long_text, "last"));
    EXPECT_THAT(all_gather_text(group, ""), Each(""));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(AllGatherText, OfOneRankIsItsOwn) {
  const Group group(collective::make_single(), {});
  EXPECT_THAT(all_gather_text(group, "alone"), ElementsAre("alone"));
}

TEST(Agree, IsSilentWhenAllAgree) {
  EXPECT_THAT(run_on_threads(make_shm_threads(3), {}, [](Group& group) { agree(group, "schedule", "abc"); }),
              Each("ok"));
}

TEST(Agree, NamesTheFirstRankThatDiffersAndBothValuesOnEveryRank) {
  const auto reports = run_on_threads(make_shm_threads(4), {}, [](Group& group) {
    agree(group, "schedule", group.rank() >= 2 ? "def" + std::to_string(group.rank()) : "abc");
  });
  EXPECT_THAT(reports,
              Each("MismatchError: the ranks disagree on the schedule: rank 2 has \"def2\", rank 0 has "
                   "\"abc\"; give every rank the same"));
}

}  // namespace
}  // namespace dear::exchange_test
