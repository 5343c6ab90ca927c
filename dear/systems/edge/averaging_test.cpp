#include "dear/systems/edge/averaging.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/group/single.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::systems::edge::averaging_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Vectors = std::vector<std::vector<double>>;

constexpr std::int64_t kElements = 37;

Vectors drawn(int ranks) {
  Vectors vectors(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (std::int64_t i = 0; i < kElements; ++i)
      vectors[static_cast<std::size_t>(rank)].push_back(std::sin(1.7 * rank + 0.3 * static_cast<double>(i)));
  return vectors;
}

// Each rank's vector after `act`, on threads over messages or in shared memory.
template <typename Act>
Vectors after(int ranks, bool shm, const Act& act) {
  std::vector<Group> groups;
  if (shm)
    for (auto& backend : backends::testing::make_shm_threads(ranks))
      groups.emplace_back(std::move(backend), Group::Options{});
  else
    for (auto& channels : channels::testing::make_thread_channels(ranks))
      groups.emplace_back(message_programs::make_program_backend(std::move(channels)), Group::Options{});
  Vectors vectors = drawn(ranks);
  EXPECT_THAT(os::testing::run_on_threads(ranks,
                                          [&](int rank) {
                                            const Group group =
                                                std::move(groups[static_cast<std::size_t>(rank)]);
                                            act(group, vectors[static_cast<std::size_t>(rank)]);
                                          }),
              Each("ok"));
  return vectors;
}

// The mean of some vectors.
std::vector<double> mean(const Vectors& vectors, std::size_t begin, std::size_t end) {
  std::vector<double> sum(kElements);
  for (std::size_t i = begin; i < end; ++i)
    for (std::size_t at = 0; at < sum.size(); ++at)
      sum[at] += vectors[i][at] / static_cast<double>(end - begin);
  return sum;
}
void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12);
}

// By powers of the matrix of weights, and no further from the mean than its second eigenvalue allows.
TEST(Averaging, GossipIsAPowerOfItsWeights) {
  for (const bool shm : {false, true})
    for (const auto& [kind, ranks] :
         {std::pair("ring", 5), std::pair("complete", 4), std::pair("torus", 6), std::pair("ring", 2)}) {
      const methods::edge::Weights weights =
          methods::edge::metropolis(methods::edge::make_graph(kind, ranks, 0.5, 1));
      constexpr int kRounds = 4;
      std::vector<double> apart(kRounds + 1);
      const Vectors found = after(ranks, shm, [&](const Group& group, std::vector<double>& own) {
        Gossip gossip(group, weights, kElements);
        const std::vector<double> goal = mean_of(group, own);
        for (int round = 0; round <= kRounds; ++round) {
          if (round > 0) gossip.mix(own);
          const double now = disagreement(group, own, goal);
          if (group.rank() == 0) apart[static_cast<std::size_t>(round)] = now;
        }
      });
      Vectors expected = drawn(ranks);
      for (int round = 0; round < kRounds; ++round) {
        Vectors next(expected.size(), std::vector<double>(kElements));
        for (std::size_t i = 0; i < expected.size(); ++i)
          for (std::size_t j = 0; j < expected.size(); ++j)
            for (std::size_t at = 0; at < next[i].size(); ++at)
              next[i][at] += weights[i][j] * expected[j][at];
        expected = next;
      }
      for (std::size_t i = 0; i < expected.size(); ++i) expect_near(found[i], expected[i]);
      const double most = std::pow(methods::edge::contraction(weights), 2);
      for (int round = 1; round <= kRounds; ++round)
        EXPECT_LE(apart[static_cast<std::size_t>(round)],
                  most * apart[static_cast<std::size_t>(round - 1)] + 1e-12);
    }
}

TEST(Averaging, CellsAverageAmongThemselvesThenTogether) {
  for (const bool shm : {false, true}) {
    const Vectors before = drawn(5);  // cells of 3 and 2
    const Vectors inside = after(5, shm, [](const Group& group, std::vector<double>& own) {
      Hierarchy(group, 2, kElements).mix_cell(own);
    });
    for (std::size_t i = 0; i < 5; ++i)
      expect_near(inside[i], i < 3 ? mean(before, 0, 3) : mean(before, 3, 5));
    const Vectors all = after(5, shm, [](const Group& group, std::vector<double>& own) {
      Hierarchy hierarchy(group, 2, kElements);
      hierarchy.mix_cell(own);
      hierarchy.mix_all(own);
    });
    for (const std::vector<double>& one : all) expect_near(one, mean(before, 0, 5));
  }
}

TEST(Averaging, RefusesWeightsAndCellsThatDoNotFit) {
  const Group alone(comm::make_single(), {});
  const auto refusal = [](const auto& act) { return os::testing::report_of(act); };
  EXPECT_THAT(refusal([&] {
                Gossip(alone, methods::edge::metropolis(methods::edge::make_graph("ring", 3, 0, 1)), 1);
              }),
              HasSubstr("3 devices on 1 ranks"));
  EXPECT_THAT(refusal([&] { Gossip(alone, {{0.5}}, 1); }), HasSubstr("ConfigError"));
  EXPECT_THAT(refusal([&] { Hierarchy(alone, 2, 1); }), HasSubstr("2 cells of 1 ranks"));
}

}  // namespace
}  // namespace dear::systems::edge::averaging_test
