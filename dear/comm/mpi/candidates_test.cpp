#include "dear/comm/mpi/candidates.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/comm/mpi/measurements.h"

namespace dear::backends::candidates_test {
namespace {

std::vector<std::string> described(Collective collective, std::int64_t bytes, int ranks,
                                   const CandidateOptions& options) {
  std::vector<std::string> names;
  for (const message_programs::AlgorithmChoice& choice :
       candidates({.collective = collective, .bytes = bytes, .ranks = ranks, .exact = true}, options)) {
    names.push_back(describe(choice));
  }
  return names;
}

// Two ranks on two hosts once had none but MPI's own for a large all-gather.
TEST(Candidates, AreThereForEverySizeAndNumberOfRanks) {
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
    for (const bool across_hosts : {false, true}) {
      for (int ranks = 2; ranks <= 5; ++ranks) {
        for (int size_class = 0; size_class < kSizeClasses; ++size_class) {
          const auto names = described(collective, largest_of(size_class), ranks,
                                       {.across_hosts = across_hosts, .sums_go_around = ranks > 2});
          EXPECT_FALSE(names.empty()) << ranks << " ranks, " << largest_of(size_class) << " bytes";
          EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
        }
      }
    }
  }
}

// See [Note: large messages over TCP].
TEST(Candidates, AcrossHostsBeginWithSegmentsThatAreSentAtOnce) {
  EXPECT_THAT(described(Collective::all_gather, std::int64_t{16} << 20, 2, {.across_hosts = true}),
              ::testing::ElementsAre("ring in segments of 32 KiB", "ring in segments of 60 KiB",
                                     "ring in segments of 128 KiB"));
  EXPECT_THAT(described(Collective::reduce_scatter, std::int64_t{16} << 20, 2, {.across_hosts = true}),
              ::testing::ElementsAre("direct in segments of 32 KiB", "direct in segments of 60 KiB",
                                     "direct in segments of 128 KiB"));
}

TEST(Candidates, OfLargeSumsGoAroundWhereTheyMay) {
  const auto names = described(Collective::reduce_scatter, std::int64_t{1} << 20, 4,
                               {.across_hosts = true, .sums_go_around = true});
  EXPECT_THAT(names, ::testing::Each(::testing::StartsWith(kAround)));
  EXPECT_THAT(described(Collective::reduce_scatter, kLargestSumInOrder, 4,
                        {.across_hosts = true, .sums_go_around = true}),
              ::testing::Each(::testing::StartsWith("direct")));
}

// Segments that are longer than what a rank has are all the same.
TEST(Candidates, AreNotCutInSeveralWaysThatCutNothing) {
  EXPECT_THAT(described(Collective::all_gather, 1024, 2, {.across_hosts = false}),
              ::testing::ElementsAre("pairwise in segments of 8 KiB"));
  EXPECT_THAT(described(Collective::all_gather, 32'768, 2, {.across_hosts = false}),
              ::testing::ElementsAre("pairwise in segments of 8 KiB", "pairwise in segments of 32 KiB"));
}

}  // namespace
}  // namespace dear::backends::candidates_test
