#include "dear/comm/mpi/measurements.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "dear/comm/mpi/ranking.h"

namespace dear::backends::findings_test {
namespace {

const message_programs::AlgorithmChoice kMpi = {.algorithm = kMpisOwn};
const message_programs::AlgorithmChoice kPairwise = {.algorithm = "pairwise", .segment_bytes = 32'768};
const message_programs::AlgorithmChoice kRing = {.algorithm = kAround, .segment_bytes = 61'440};
const message_programs::AlgorithmChoice kDirect = {.algorithm = "direct", .segment_bytes = 8192};

Measurements some() {
  Measurements measurements;
  measurements.set(Collective::all_gather, 3, {.choice = kPairwise, .seconds = 1e-4, .second = kMpi});
  measurements.set(Collective::all_gather, 9, {.choice = kMpi, .seconds = 0.07});
  measurements.set(Collective::reduce_scatter, 4, {.choice = kDirect, .seconds = 2e-4});
  measurements.set(Collective::reduce_scatter, 9, {.choice = kRing, .seconds = 0.08});
  return measurements;
}

TEST(Measurements, ServeTheSizesNearThem) {
  const Choices choices = some().choices(false);
  EXPECT_EQ(choices.find(Collective::all_gather, 1)->algorithm, "pairwise");
  EXPECT_EQ(choices.find(Collective::all_gather, largest_of(5))->algorithm, "pairwise");
  EXPECT_EQ(choices.find(Collective::all_gather, largest_of(7))->algorithm, kMpisOwn);
  EXPECT_EQ(choices.find(Collective::all_gather, largest_of(10))->algorithm, kMpisOwn);
  EXPECT_EQ(choices.find(Collective::reduce_scatter, largest_of(6))->algorithm, "direct");
  EXPECT_EQ(choices.find(Collective::reduce_scatter, largest_of(8))->algorithm, kAround);
}

TEST(Measurements, ThatAreForgottenLeaveTheirSizeToTheNearest) {
  Measurements measurements = some();
  measurements.forget(Collective::all_gather, 9);
  EXPECT_EQ(measurements.count(), 3);
  EXPECT_EQ(measurements.find(Collective::all_gather, 9), nullptr);
  EXPECT_EQ(measurements.choices(false).find(Collective::all_gather, largest_of(9))->algorithm, "pairwise");
  measurements.forget(Collective::all_gather, 3);
  EXPECT_EQ(measurements.choices(false).find(Collective::all_gather, largest_of(9))->algorithm, kAround);
}

TEST(Measurements, OfSumsThatGoAroundAndOfOthersAreNothingToEachOther) {
  Measurements small;
  small.set(Collective::reduce_scatter, 2, {.choice = kDirect, .seconds = 1});
  EXPECT_EQ(small.choices(true).find(Collective::reduce_scatter, kLargestSumInOrder)->segment_bytes, 8192);
  EXPECT_NE(small.choices(true).find(Collective::reduce_scatter, kLargestSumInOrder + 1)->segment_bytes,
            8192);
  EXPECT_EQ(small.choices(false).find(Collective::reduce_scatter, kLargestSumInOrder + 1)->segment_bytes,
            8192);
}

TEST(Measurements, MakeAnAllReduceOfBothHalves) {
  const Choices choices = some().choices(false);
  EXPECT_EQ(choices.find(Collective::all_reduce, 4096)->algorithm, "gather");
  EXPECT_EQ(choices.find(Collective::all_reduce, largest_of(4))->algorithm, "direct");
  EXPECT_EQ(choices.find(Collective::all_reduce, largest_of(4))->then, "pairwise");
}

TEST(Measurements, ComeBackFromTheirFile) {
  const auto found = Measurements::parse(some().format("a key"), "a key");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->count(), 4);
  EXPECT_EQ(found->choices(true).summary(), some().choices(true).summary());
  EXPECT_EQ(found->find(Collective::all_gather, 3)->seconds, 1e-4);
  ASSERT_TRUE(found->find(Collective::all_gather, 3)->second);
  EXPECT_EQ(found->find(Collective::all_gather, 3)->second->algorithm, kMpisOwn);
  EXPECT_FALSE(found->find(Collective::all_gather, 9)->second);
  EXPECT_EQ(found->find(Collective::all_gather, 4), nullptr);
}

TEST(Measurements, OfAnotherKeyOrFormAreNone) {
  const std::string text = some().format("a key");
  EXPECT_FALSE(Measurements::parse(text, "another key"));
  for (const char* bad : {"", "no json", "[]", "{}", R"({"dear-mpi-choices": 8, "key": "a key"})",
                          R"({"dear-mpi-choices": 8, "key": "a key", "found": []})",
                          R"({"dear-mpi-choices": 8, "key": "a key", "found": [{"collective": 7}]})"}) {
    EXPECT_FALSE(Measurements::parse(bad, "a key")) << bad;
  }
  // Choices without times are of the form before.
  EXPECT_FALSE(Measurements::parse(
      R"({"dear-mpi-choices": 7, "key": "a key", "choices": [{"collective": "all-gather", "size_class": 9,
          "algorithm": "mpi", "then": "", "segment_bytes": 65536}]})",
      "a key"));
  for (const auto& [from, to] : {std::pair{"all-gather", "all-scatter"},
                                 {"\"dear-mpi-choices\": 8", "\"dear-mpi-choices\": 7"},
                                 {"\"size_class\": 9", "\"size_class\": 11"},
                                 {"\"size_class\": 9", "\"size_class\": -1"},
                                 {"pairwise", "nosuch"},
                                 {"\"size_class\": 9", "\"size_class\": 1e300"},
                                 {"\"size_class\": 9", "\"size_class\": 9.5"},
                                 {"8192", "-8192"},
                                 {"8192", "1e300"},
                                 {"8192", "18446744073709551615"},
                                 {"8192", "\"8192\""},
                                 {"0.07", "0"},
                                 {"0.07", "-0.07"},
                                 {"0.07", "1e999"},
                                 {"\"seconds\"", "\"minutes\""}}) {
    std::string changed = text;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), std::string(from).size(), to);
    EXPECT_FALSE(Measurements::parse(changed, "a key")) << from << " to " << to;
  }
  EXPECT_FALSE(Measurements::parse(text.substr(0, text.size() / 2), "a key"));
}

// A file says of MPI's own all-gather that it takes 110 ms, which it did by luck; today it takes 220, and the
// pairwise one 108. The measurement falls, all algorithms are ranked again, and the file says so.
TEST(Measurements, ABadlyMeasuredOneIsReplaced) {
  Measurements bad;
  bad.set(Collective::all_gather, 9, {.choice = kMpi, .seconds = 0.110, .second = kRing});
  auto measurements = Measurements::parse(bad.format("a key"), "a key");
  ASSERT_TRUE(measurements);
  const Looks mpi_today = {0.219, 0.221, 0.110, 0.222, 0.220},
              ring_today = {0.108, 0.109, 0.107, 0.110, 0.108};
  const MeasuredChoice* const was = measurements->find(Collective::all_gather, 9);
  ASSERT_NE(was, nullptr);
  ASSERT_EQ(standing(was->seconds, mpi_today, ring_today), Standing::slower);
  const std::vector<message_programs::AlgorithmChoice> choices = {kRing, kMpi};
  const Ranking ranking = rank_choices({ring_today, mpi_today});
  measurements->set(Collective::all_gather, 9,
                    {.choice = choices[ranking.best],
                     .seconds = usual_seconds(ring_today),
                     .second = choices[*ranking.second]});
  const auto again = Measurements::parse(measurements->format("a key"), "a key");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->choices(false).find(Collective::all_gather, largest_of(9))->algorithm, kAround);
  EXPECT_EQ(standing(again->find(Collective::all_gather, 9)->seconds, ring_today, mpi_today),
            Standing::holds);
}

}  // namespace
}  // namespace dear::backends::findings_test
