#include "dear/schedule/fusion/eager_order.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/schedule/fusion/chunks.h"

namespace dear::fusion::eager_order_test {
namespace {

using ::testing::ElementsAre;

constexpr double kRelative = 1e-9;
constexpr HalfTransfer scatter(std::uint32_t chunk) { return {chunk, Half::scatter}; }
constexpr HalfTransfer gather(std::uint32_t chunk) { return {chunk, Half::gather}; }

struct Job {
  std::vector<TimedChunk> chunks;
  double compute_seconds = 0;
};

// n layers with a chunk each: the last is ready first and needed last.
Job random_job(std::mt19937& random, std::size_t count, bool updates) {
  std::uniform_real_distribution<double> unit(0, 1);
  const double network = 4 * unit(random);
  Job job{.chunks = std::vector<TimedChunk>(count)};
  double backward = 0, forward = 0;
  for (std::size_t chunk = count; chunk-- > 0;) {
    const double seconds = network * unit(random) * (random() % 8 == 0 ? 5 : 1);
    job.chunks[chunk] = {.ready = backward += 2 * unit(random),
                         .scatter = seconds,
                         .update = updates ? 0.3 * unit(random) : 0,
                         .gather = seconds,
                         .forward_left = forward += unit(random)};
  }
  job.compute_seconds = backward + forward;
  return job;
}

// All orders in which each all-gather follows its reduce-scatter, updates going as their all-gathers or as
// their reduce-scatters do.
double best_of_all(const Job& job) {
  std::vector<std::uint32_t> jobs;  // 2 k is the reduce-scatter of k, 2 k + 1 its all-gather
  for (std::uint32_t i = 0; i < 2 * job.chunks.size(); ++i) jobs.push_back(i);
  double best = INFINITY;
  do {
    EagerOrder order, other;
    std::vector<bool> scattered(job.chunks.size(), false);
    bool possible = true;
    for (const std::uint32_t at : jobs) {
      const std::uint32_t chunk = at / 2;
      possible = possible && (at % 2 == 0 || scattered[chunk]);
      scattered[chunk] = true;
      order.network.push_back(at % 2 == 0 ? scatter(chunk) : gather(chunk));
      (at % 2 == 0 ? other : order).updates.push_back(chunk);
    }
    if (!possible) continue;
    other.network = order.network;
    best = std::min({best, seconds_of(order, job.chunks, job.compute_seconds),
                     seconds_of(other, job.chunks, job.compute_seconds)});
  } while (std::next_permutation(jobs.begin(), jobs.end()));
  return best;
}

EagerOrder in_phases(std::size_t count) {
  EagerOrder order;
  for (auto chunk = static_cast<std::uint32_t>(count); chunk-- > 0;) order.network.push_back(scatter(chunk));
  for (std::uint32_t chunk = 0; chunk < count; ++chunk) {
    order.network.push_back(gather(chunk));
    order.updates.push_back(chunk);
  }
  return order;
}

EagerOrder in_pairs(std::size_t count) {
  EagerOrder order;
  for (auto chunk = static_cast<std::uint32_t>(count); chunk-- > 0;) {
    order.network.push_back(scatter(chunk));
    order.network.push_back(gather(chunk));
    order.updates.push_back(chunk);
  }
  return order;
}

TEST(EagerOrder, EveryTransferOnceAndInAPossibleOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < testing::rounds(500); ++round) {
    const Job job = random_job(random, 1 + random() % 30, round % 2 == 0);
    const EagerOrder order = eager_order(job.chunks, job.compute_seconds);
    ASSERT_EQ(order.network.size(), 2 * job.chunks.size());
    std::vector<int> halves(job.chunks.size(), 0);
    for (const auto& [chunk, half] : order.network) ASSERT_EQ(halves[chunk]++, half == Half::scatter ? 0 : 1);
    std::vector<std::uint32_t> updates = order.updates;
    std::sort(updates.begin(), updates.end());
    for (std::uint32_t chunk = 0; chunk < updates.size(); ++chunk) ASSERT_EQ(updates[chunk], chunk);
    EXPECT_DOUBLE_EQ(seconds_of(order, job.chunks, job.compute_seconds), order.seconds);
  }
}

// Thousands of jobs: never slower than either known order, never under what nothing can go below.
TEST(EagerOrder, BetweenTheKnownOrdersAndTheLeast) {
  std::mt19937 random(2);
  int better = 0;
  for (int round = 0; round < testing::rounds(5000); ++round) {
    const Job job = random_job(random, 1 + random() % 40, round % 2 == 0);
    const double seconds = eager_order(job.chunks, job.compute_seconds).seconds;
    const double phases = seconds_of(in_phases(job.chunks.size()), job.chunks, job.compute_seconds);
    const double pairs = seconds_of(in_pairs(job.chunks.size()), job.chunks, job.compute_seconds);
    const double least = least_seconds(job.chunks, job.compute_seconds);
    ASSERT_LE(seconds, std::min(phases, pairs) * (1 + kRelative)) << "round " << round;
    ASSERT_GE(seconds, least * (1 - kRelative)) << "round " << round;
    ASSERT_LE(quick_eager_seconds(job.chunks, job.compute_seconds),
              std::min(phases, pairs) * (1 + kRelative));
    if (seconds < std::min(phases, pairs) * 0.99) ++better;
  }
  EXPECT_GT(better, testing::rounds(1000));
}

// Updates of no time: the best of all orders is found. With updates between the halves the job is not quite
// the one of Carlier's theorem.
TEST(EagerOrder, NoOrderOfAFewChunksIsBetter) {
  std::mt19937 random(3);
  for (int round = 0; round < testing::rounds(120); ++round) {
    const bool updates = round % 2 == 0;
    const Job job = random_job(random, 1 + round % 4, updates);
    const double best = best_of_all(job);
    const double seconds = eager_order(job.chunks, job.compute_seconds).seconds;
    EXPECT_LE(seconds, best * (updates ? 1.08 : 1 + kRelative)) << "round " << round;
    EXPECT_GE(seconds, best * (1 - kRelative)) << "round " << round;
    EXPECT_LE(least_seconds(job.chunks, job.compute_seconds), best * (1 + kRelative)) << "round " << round;
  }
}

// Three layers of forward 1 and backward 2, halves of a second each. Reduce-scatters of 2, 1, 0 are ready at
// 2, 4, 6. The gaps at 3 and 5 take the gathers of 2 and 1, so that after the backward only bucket 0 is left:
// 6 + 1 + 1, then three forwards. dear gathers all three after the backward, and ends as soon; wfbp too.
// With halves of 2 s the network is never idle from 2 on, and 12 s of transfers end at 14; the forward of the
// last layer follows.
TEST(EagerOrder, ByPencil) {
  std::vector<TimedChunk> chunks = {{.ready = 6, .scatter = 1, .gather = 1, .forward_left = 3},
                                    {.ready = 4, .scatter = 1, .gather = 1, .forward_left = 2},
                                    {.ready = 2, .scatter = 1, .gather = 1, .forward_left = 1}};
  EXPECT_DOUBLE_EQ(eager_order(chunks, 9).seconds, 11);
  EXPECT_DOUBLE_EQ(least_seconds(chunks, 9), 11);
  for (TimedChunk& chunk : chunks) chunk.scatter = chunk.gather = 2;
  EXPECT_DOUBLE_EQ(least_seconds(chunks, 9), 15);
  const EagerOrder order = eager_order(chunks, 9);
  EXPECT_DOUBLE_EQ(order.seconds, 15);
  EXPECT_EQ(order.network, in_phases(3).network);  // the first of equals
}

// Chunk 1 is gathered while the network would wait for chunk 0; so its large neighbour comes a second
// earlier than in phases:
//   network  scatter 2 until 0.75, scatter 1 from 1 to 2, gather 1 until 3, scatter 0, gather 0 until 4,
//            gather 2 until 7; the forward of 2 until 7.5
//   phases   the same without gather 1, which comes after gather 0: gather 2 until 8, forward until 8.5
//   pairs    gather 2 from 0.75 to 3.75, and all else behind it: gather 0 until 6.75, forwards until 8.75
TEST(EagerOrder, NeitherPhasesNorPairs) {
  const std::vector<TimedChunk> chunks = {{.ready = 3, .scatter = 0.5, .gather = 0.5, .forward_left = 2},
                                          {.ready = 1, .scatter = 1, .gather = 1, .forward_left = 1},
                                          {.ready = 0.5, .scatter = 0.25, .gather = 3, .forward_left = 0.5}};
  const EagerOrder order = eager_order(chunks, 5);
  EXPECT_DOUBLE_EQ(order.seconds, 7.5);
  EXPECT_THAT(order.network,
              ElementsAre(scatter(2), scatter(1), gather(1), scatter(0), gather(0), gather(2)));
  EXPECT_DOUBLE_EQ(seconds_of(in_phases(3), chunks, 5), 8.5);
  EXPECT_DOUBLE_EQ(seconds_of(in_pairs(3), chunks, 5), 8.75);
}

// A model of 600 tensors, a chunk each: within a hundredth of what nothing goes below.
TEST(EagerOrder, HundredsOfChunks) {
  std::mt19937 random(4);
  for (int round = 0; round < 5; ++round) {
    const Job job = random_job(random, 600, true);
    EXPECT_LE(eager_order(job.chunks, job.compute_seconds).seconds,
              1.01 * least_seconds(job.chunks, job.compute_seconds));
  }
}

TEST(EagerOrder, OfNothingIsComputationAlone) {
  EXPECT_EQ(eager_order({}, 3).seconds, 3);
  EXPECT_TRUE(eager_order({}, 3).network.empty());
  EXPECT_EQ(least_seconds({}, 3), 3);
}

}  // namespace
}  // namespace dear::fusion::eager_order_test
