// Where tensors lie that one rank updates whole.

#include "dear/comm/buckets/whole_tensors.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace dear::buckets {
namespace {

constexpr std::int64_t kLine = 16;

void expect_right(const std::vector<Placeable>& tensors, int ranks, const Placement& placement) {
  ASSERT_EQ(placement.elements % (ranks * kLine), 0);
  const std::int64_t shard = placement.elements / ranks;
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t begin = placement.offsets[i], end = begin + tensors[i].elements;
    EXPECT_EQ(begin % kLine, 0);
    EXPECT_LE(end, placement.elements);
    if (tensors[i].cost > 0) {
      EXPECT_EQ(begin / shard, (end - 1) / shard) << "a border cuts tensor " << i;
    }
    taken.emplace_back(begin, end);
  }
  std::sort(taken.begin(), taken.end());
  for (std::size_t i = 1; i < taken.size(); ++i) EXPECT_LE(taken[i - 1].second, taken[i].first);
}

TEST(WholeTensors, OfEqualSizeTakeNoPadding) {
  const std::vector<Placeable> tensors(8, {.elements = 64, .cost = 1});
  std::vector<double> load;
  const Placement placement = place_whole(tensors, 4, kLine, load);
  expect_right(tensors, 4, placement);
  EXPECT_EQ(placement.elements, 8 * 64);
  EXPECT_EQ(load, (std::vector<double>{2, 2, 2, 2}));
}

TEST(WholeTensors, OneAloneTakesAShardOfEachRank) {
  std::vector<double> load;
  EXPECT_EQ(place_whole({{.elements = 100, .cost = 1}}, 4, kLine, load).elements, 4 * 112);
}

TEST(WholeTensors, GapsAreFilledWithWhatMayBeCut) {
  // Two matrices on four ranks, and an embedding that is as long as the rest of two shards and more.
  const std::vector<Placeable> tensors = {
      {.elements = 640}, {.elements = 320, .cost = 5}, {.elements = 320, .cost = 5}, {.elements = 16}};
  std::vector<double> load;
  const Placement placement = place_whole(tensors, 4, kLine, load);
  expect_right(tensors, 4, placement);
  EXPECT_LE(placement.elements, 1408);  // 1296 and no padding at best
}

TEST(WholeTensors, AnEmbeddingThatIsLongerThanAShardTakesNoPadding) {
  std::vector<Placeable> tensors{{.elements = 1300}};
  for (int i = 0; i < 12; ++i) tensors.push_back({.elements = 192, .cost = 1});
  std::vector<double> load;
  const Placement placement = place_whole(tensors, 4, kLine, load);
  expect_right(tensors, 4, placement);
  EXPECT_LE(placement.elements, 3904);  // 3604 without padding
  EXPECT_EQ(load, (std::vector<double>{5, 4, 3, 0}));
}

TEST(WholeTensors, OfLaterBucketsGoToRanksThatHaveLess) {
  std::vector<double> load;
  const std::vector<Placeable> one = {{.elements = 32, .cost = 3}};
  for (int bucket = 0; bucket < 8; ++bucket) place_whole(one, 4, kLine, load);
  EXPECT_EQ(load, (std::vector<double>{6, 6, 6, 6}));
}

TEST(WholeTensors, LieRightInRandomBuckets) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> tensors_of(1, 24), elements(1, 4000), ranks_of(1, 7), kind(0, 2);
  for (int round = 0; round < 300; ++round) {
    std::vector<Placeable> tensors(static_cast<std::size_t>(tensors_of(random)));
    std::int64_t all = 0, longest = 0;
    for (Placeable& tensor : tensors) {
      tensor.elements = elements(random);
      if (kind(random) > 0) tensor.cost = static_cast<double>(tensor.elements);
      if (tensor.cost > 0) longest = std::max(longest, tensor.elements);
      all += tensor.elements + kLine;
    }
    const int ranks = ranks_of(random);
    std::vector<double> load, again;
    const Placement placement = place_whole(tensors, ranks, kLine, load);
    expect_right(tensors, ranks, placement);
    // Never much more than everything and a longest tensor for each rank.
    EXPECT_LE(placement.elements, (all + ranks * (longest + kLine)) * 103 / 100 + ranks * kLine);
    EXPECT_EQ(place_whole(tensors, ranks, kLine, again).offsets, placement.offsets);
  }
}

}  // namespace
}  // namespace dear::buckets
