#include "dear/comm/group/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/single.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::exchange_test {
namespace {

using backends::testing::make_shm_threads;
using comm::testing::run_on_threads;
using ::testing::ContainsRegex;
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
  const Group group(comm::make_single(), {});
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
              Each(ContainsRegex("^MismatchError: .*schedule: rank 2 has \"def2\".*rank 0 has \"abc\"")));
}

enum class Colour : std::uint8_t { red, green };
struct Choice {
  std::uint64_t digest = 0;
  Colour colour = Colour::red;
  bool operator==(const Choice&) const = default;
};

TEST(AgreeOnValues, PutsNothingIntoWordsWhenAllAgree) {
  EXPECT_THAT(run_on_threads(make_shm_threads(3), {},
                             [](Group& group) {
                               const auto words = []() -> std::string { throw ConfigError("words"); };
                               agree(group, "colour", Colour::green, words);
                               agree(group, "switch", true, words);
                               agree(group, "choice", Choice{.digest = 7, .colour = Colour::green}, words);
                             }),
              Each("ok"));
}

TEST(AgreeOnValues, SaysTheSameOnEveryRankWhereOneFieldDiffers) {
  const auto reports = run_on_threads(make_shm_threads(4), {}, [](Group& group) {
    const Choice mine{.digest = 7, .colour = group.rank() == 3 ? Colour::green : Colour::red};
    agree(group, "choice", mine, [&] { return mine.colour == Colour::red ? "seven red" : "seven green"; });
  });
  EXPECT_THAT(reports, Each(ContainsRegex("^MismatchError: .*choice: rank 3 .*green.*rank 0 .*red")));
}

}  // namespace
}  // namespace dear::exchange_test
