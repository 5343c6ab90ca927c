#include "dear/platform/algorithm/testing/verify.h"

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/algorithms.h"

namespace dear::algorithm::verify_test {
namespace {

using ::testing::HasSubstr;
using testing::kMostVerifiedRanks;
using ::testing::ThrowsMessage;
using testing::verify;

// A good ring reduce-scatter or all-gather of three ranks, spoilt.
struct Spoilt {
  std::string name;
  Collective collective = Collective::all_gather;
  std::function<void(Program&)> spoil;
  std::string complaint;
};
void PrintTo(const Spoilt& spoilt, std::ostream* out) { *out << spoilt.name; }

class Verify : public ::testing::TestWithParam<Spoilt> {};

TEST_P(Verify, NamesWhatIsWrong) {
  Program program = make_program(find_algorithm("ring"), GetParam().collective, {.ranks = 3});
  verify(program);
  GetParam().spoil(program);
  EXPECT_THAT([&] { verify(program); }, ThrowsMessage<ScheduleError>(::testing::AllOf(
                                            HasSubstr("of 3 ranks"), HasSubstr(GetParam().complaint))));
}

INSTANTIATE_TEST_SUITE_P(
    All, Verify,
    ::testing::Values(
        Spoilt{"ARoundTooFew", Collective::all_gather, [](Program& p) { p.rounds.pop_back(); },
               "ends with 0 of 1 contributions to block 1 on rank 0"},
        Spoilt{"ASumTooFew", Collective::reduce_scatter, [](Program& p) { p.rounds.erase(p.rounds.begin()); },
               "ends with 2 of 3 contributions to block 0 on rank 0"},
        Spoilt{"ARoundTwice", Collective::reduce_scatter,
               [](Program& p) { p.rounds.push_back(p.rounds.back()); }, "adds a contribution to block"},
        Spoilt{"TheWrongSum", Collective::reduce_scatter,
               [](Program& p) { p.rounds[0][0].reduces[0].blocks = {{.begin = 0, .end = 1}}; },
               "in round 0: rank 0 adds what belongs to block 1 to block 0, from rank 2"},
        Spoilt{"NothingToSend", Collective::all_gather,
               [](Program& p) { p.rounds[0][1].sends[0].blocks = {{.begin = 0, .end = 1}}; },
               "in round 0: rank 1 sends block 0 to rank 2 before it holds anything"},
        Spoilt{"Unexpected", Collective::all_gather, [](Program& p) { p.rounds[1][2].receives.clear(); },
               "in round 1: rank 2 is sent 1 messages by rank 1 and receives 0"},
        Spoilt{"NotSent", Collective::all_gather, [](Program& p) { p.rounds[1][1].sends.clear(); },
               "in round 1: rank 2 expects message 1 of rank 1, which sends 0"},
        Spoilt{"AnotherLength", Collective::all_gather,
               [](Program& p) { p.rounds[1][1].sends[0].blocks.push_back({.begin = 1, .end = 2}); },
               "in round 1: rank 2 expects 1 blocks of rank 1, which sends 2"},
        Spoilt{"ToItself", Collective::all_gather, [](Program& p) { p.rounds[0][1].sends[0].peer = 1; },
               "in round 0: rank 1 exchanges with rank 1"},
        Spoilt{"ToNobody", Collective::all_gather, [](Program& p) { p.rounds[0][1].sends[0].peer = 3; },
               "in round 0: rank 1 exchanges with rank 3"},
        Spoilt{"NoSuchBlock", Collective::all_gather,
               [](Program& p) { p.rounds[0][1].sends[0].blocks = {{.begin = 3, .end = 4}}; },
               "in round 0: rank 1 uses block 3 of 3"},
        Spoilt{"IntoWhatItSends", Collective::all_gather,
               [](Program& p) { p.rounds[0][1].receives[0].blocks = {{.begin = 1, .end = 2}}; },
               "in round 0: rank 1 receives into block 1, which it also sends or receives"},
        Spoilt{"NoPart", Collective::all_gather, [](Program& p) { p.rounds[1].pop_back(); },
               "has a part for 2 ranks in round 1"},
        Spoilt{"NoRoot", Collective::all_gather, [](Program& p) { p.root = 3; }, "has the root 3"},
        Spoilt{"OddBlocks", Collective::all_gather, [](Program& p) { p.blocks = 4; },
               "shares 4 blocks among 3 ranks"}),
    [](const auto& info) { return info.param.name; });

TEST(Verify, RefusesMoreRanksThanItCanTellApart) {
  Program program{.name = "large", .ranks = kMostVerifiedRanks + 1, .copies = {}, .rounds = {}};
  EXPECT_THAT([&] { verify(program); }, ThrowsMessage<ScheduleError>(HasSubstr("has 1025 ranks")));
}

// ---- An all-to-all-v, whose chunks may have any size: 3 ranks, 2 chunks, 9 blocks, the first 3 of counts.

Program chunks_of_three() {
  Program program = pairwise_all_to_all_v(3, 2);
  verify(program);
  return program;
}

TEST(VerifyAllToAllV, CountsComeFirst) {
  Program program = chunks_of_three();
  std::rotate(program.rounds.begin(), program.rounds.begin() + 2, program.rounds.end());
  EXPECT_THAT([&] { verify(program); },
              ThrowsMessage<ScheduleError>(HasSubstr("rank 0 receives chunks of rank 2 before its counts")));
  // In one round is too late as well: what comes first is not said.
  program = chunks_of_three();
  for (int rank = 0; rank < 3; ++rank) {
    Part& first = program.rounds[0][static_cast<std::size_t>(rank)];
    const Part& chunks = program.rounds[2][static_cast<std::size_t>(rank)];
    first.sends.push_back(chunks.sends[0]);
    first.receives.push_back(chunks.receives[0]);
  }
  program.rounds.erase(program.rounds.begin() + 2);
  EXPECT_THAT([&] { verify(program); }, ThrowsMessage<ScheduleError>(HasSubstr("before its counts")));
}

TEST(VerifyAllToAllV, ChunksGoToTheirPlacesAndNowhereElse) {
  Program program = chunks_of_three();
  Range& place = program.rounds[2][0].receives[0].blocks[0];  // chunks of rank 2
  place = {.begin = place.begin - 1, .end = place.end - 1};
  EXPECT_THAT([&] { verify(program); }, ThrowsMessage<ScheduleError>(HasSubstr("whose size may be another")));
  program = chunks_of_three();
  program.rounds[3][1].sends.clear();
  EXPECT_THROW(verify(program), ScheduleError);
  program = chunks_of_three();
  program.rounds.pop_back();
  EXPECT_THAT([&] { verify(program); },
              ThrowsMessage<ScheduleError>(HasSubstr("ends with 0 of 1 contributions")));
}

}  // namespace
}  // namespace dear::algorithm::verify_test
