#include "dear/base/liveness/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/liveness/tree.h"
#include "dear/base/vocabulary/error.h"

namespace dear::liveness::judge_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SteadyTime kBegin{std::chrono::hours(1)};
SteadyTime at(int milliseconds) { return kBegin + std::chrono::milliseconds(milliseconds); }

Judge judge_of(int ranks) {
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) names.push_back("rank " + std::to_string(rank) + " (pid 7)");
  return {3, names};
}

Word word(int culprit, Cause cause, const std::string& text = "rank 0 lost its connection to rank 1") {
  return {.culprit = culprit, .cause = cause, .text = text};
}

TEST(Judge, ACauseOvertakesItsConsequences) {
  Judge judge = judge_of(4);
  EXPECT_FALSE(judge.due());
  judge.hear(0, word(1, Cause::lost), at(0));
  EXPECT_EQ(judge.due(), at(500));  // the death of a process on another host takes a moment
  judge.hear(3, word(2, Cause::failed, "rank 2 failed: ValueError: poison"), at(20));
  EXPECT_EQ(judge.due(), at(50));
  EXPECT_EQ(judge.decide().first.text, "rank 2 failed: ValueError: poison");
  judge.hear(2, word(1, Cause::died), at(40));  // two at once: the killed one explains
  const Verdict verdict = judge.decide();
  EXPECT_EQ(verdict.first.text, "rank 1 (pid 7) died: its own output says why");
  EXPECT_EQ(verdict.first.culprit, 1);
  EXPECT_EQ(verdict.epoch, 3);
}

TEST(Judge, TheEndOfARankThatSaidWhyIsNoCause) {
  Judge judge = judge_of(3);
  judge.hear(2, word(2, Cause::failed, "rank 2 failed: poison"), at(0));
  judge.hear(0, word(2, Cause::died), at(1));
  EXPECT_EQ(judge.decide().first.cause, Cause::failed);
  judge.note_left(1);
  judge.hear(0, word(1, Cause::died), at(2));
  EXPECT_EQ(judge.decide().first.culprit, 2);
}

TEST(Judge, ALostConnectionIsThatOfARankThatLeft) {
  Judge judge = judge_of(3);
  judge.note_left(1);
  EXPECT_FALSE(judge.due());  // as long as nobody waits for it
  judge.hear(2, word(0, Cause::lost, "rank 2 lost its connection to rank 0"), at(0));
  EXPECT_EQ(judge.decide().first.text,
            "rank 1 (pid 7) left the group while others wait: every rank must issue the same collectives");
}

TEST(Judge, AsksWhereALateRankIs) {
  Judge judge = judge_of(3);
  judge.hear(0, word(1, Cause::timeout, "rank 1 did not come within 3 s"), at(0));
  EXPECT_EQ(judge.asks(), 1);
  EXPECT_EQ(judge.due(), at(400));
  judge.note_place(1, "is in the program's own code");
  EXPECT_FALSE(judge.asks());
  EXPECT_EQ(judge.due(), at(50));
  EXPECT_EQ(judge.decide().first.text, "rank 1 did not come within 3 s; rank 1 is in the program's own code");
}

TEST(Word, IsReadFromWhatGroupsThrow) {
  const auto read = [](const std::string& text) {
    const Word word = read_sentence(text, 0, Cause::lost);
    EXPECT_EQ(word.text, text);
    return std::pair(word.culprit, word.cause);
  };
  EXPECT_EQ(read("rank 2 (pid 51) died while others wait"), std::pair(2, Cause::died));
  EXPECT_EQ(read("rank 2 failed: rank 1 ate it"), std::pair(2, Cause::failed));
  EXPECT_EQ(read("rank 0 failed: ValueError"), std::pair(0, Cause::failed));
  EXPECT_EQ(read("rank 1 left before rank 0 was done with it"), std::pair(1, Cause::left));
  EXPECT_EQ(read("rank 0 lost its connection to rank 2 (reset)"), std::pair(2, Cause::lost));
  EXPECT_EQ(read("rank 0 gave up its barrier: nothing came from rank 3 in time"), std::pair(3, Cause::lost));
  EXPECT_EQ(read("rank 4 gave up its wait in collective 7: no sign of life from rank 2"),
            std::pair(2, Cause::timeout));
  EXPECT_EQ(read("rank 4 gave up its wait in collective 7: no sign of life from rank 0"),
            std::pair(0, Cause::timeout));
  EXPECT_EQ(read("no memory for rankings"), std::pair(-1, Cause::lost));
  EXPECT_EQ(read("rank 99999999999 died"), std::pair(-1, Cause::lost));
  EXPECT_EQ(word_of(std::make_exception_ptr(TimeoutError("rank 4 (pid 3) did not come")), 0)->cause,
            Cause::timeout);
  EXPECT_EQ(word_of(std::make_exception_ptr(MismatchError("collective 3: rank 4 asks")), 0)->cause,
            Cause::mismatch);
  EXPECT_FALSE(word_of(std::make_exception_ptr(ConfigError("unequal shards")), 0));
}

TEST(Verdict, TravelsWhole) {
  const Verdict verdict{.epoch = 2, .first = word(5, Cause::left, "a text"), .place = "there", .realtime = 9};
  const auto read = verdict_from(to_bytes(verdict));
  ASSERT_TRUE(read);
  EXPECT_EQ(to_bytes(*read), to_bytes(verdict));
  const std::string bytes = to_bytes(verdict);
  for (std::size_t end = 0; end < bytes.size(); ++end)
    EXPECT_FALSE(verdict_from(bytes.substr(0, end))) << end;
  EXPECT_THROW(std::rethrow_exception(error_of({.first = word(1, Cause::timeout)})), TimeoutError);
  EXPECT_THROW(std::rethrow_exception(error_of({.first = word(1, Cause::mismatch)})), MismatchError);
  EXPECT_THROW(std::rethrow_exception(error_of({.first = word(1, Cause::died)})), TransportError);
}

TEST(Tree, HasTheLowestRanksOfHostsAboveTheOthers) {
  const std::vector<std::string> hosts{"a", "b", "a", "b", "a"};
  EXPECT_EQ(node_of(hosts, 0).parent, -1);
  EXPECT_THAT(node_of(hosts, 0).near, ElementsAre(2, 4));
  EXPECT_THAT(node_of(hosts, 0).far, ElementsAre(1));
  EXPECT_EQ(node_of(hosts, 1).parent, 0);
  EXPECT_FALSE(node_of(hosts, 1).is_near);
  EXPECT_EQ(node_of(hosts, 3).parent, 1);
  EXPECT_TRUE(node_of(hosts, 3).is_near);
  std::vector<std::string> many;
  for (int host = 0; host < 300; ++host) many.push_back(std::to_string(host));
  for (int rank = 0; rank < 300; ++rank) {
    const Node node = node_of(many, rank);
    EXPECT_LE(node.far.size(), kFanOut);
    EXPECT_THAT(node.near, IsEmpty());
    EXPECT_LT(node.parent, rank);  // a rank connects to those below it
    for (const int child : node.far) EXPECT_EQ(node_of(many, child).parent, rank);
  }
}

}  // namespace
}  // namespace dear::liveness::judge_test
