#include "dear/tools/bench_collectives/link_times.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/shaped/pair_links.h"
#include "dear/comm/shaped/testing/virtual_channels.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::bench_collectives::link_times_test {
namespace {

using channels::testing::cluster_of_links;
using os::testing::report_of;
using os::testing::run_on_threads;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::HasSubstr;

std::vector<PairDevice> devices(int count) {
  std::vector<PairDevice> all;
  for (int i = 0; i < count; ++i)
    all.push_back(
        {.name = std::string(1, static_cast<char>('a' + i)), .flops_per_second = 1, .memory_bytes = 1});
  return all;
}

// Messages over channels; a rank waits for what it sends, too.
PairWire wire_of(channels::Channels& channels, std::vector<std::byte>& memory) {
  return {.memory = memory, .carry = [&](int from, int to, std::int64_t bytes) {
            using Direction = channels::Transfer::Direction;
            const bool sends = channels.rank() == from;
            channels::Transfer transfer{.direction = sends ? Direction::send : Direction::receive,
                                        .peer = sends ? to : from,
                                        .data = memory.data(),
                                        .bytes = bytes};
            channels.start(transfer);
            while (!transfer.done)
              channels.wait([] { return "carry"; }, Deadline::after(std::chrono::seconds(60)));
          }};
}

// The times of all pairs of modelled links, on the clock of the model.
std::vector<PairTimes> times_in_virtual_time(const PairCluster& truth, LinkTimesOptions options) {
  const int size = static_cast<int>(truth.devices.size());
  auto world = channels::testing::make_virtual_world(size);
  options.now = world.now;
  std::vector<std::vector<PairTimes>> found(index_of(size));
  const auto reports = run_on_threads(size, [&](int rank) {
    const auto mine = channels::make_pair_links(std::move(world.channels[index_of(rank)]), truth, world.now);
    std::vector<std::byte> memory(1 << 20);
    const PairWire wire = wire_of(*mine, memory);
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) {
        if (from == to || (rank != from && rank != to)) continue;
        PairTimes times = time_link(rank, from, to, wire, options);
        if (rank == from) found[index_of(rank)].push_back(std::move(times));
      }
    }
  });
  EXPECT_THAT(reports, Each("ok"));
  std::vector<PairTimes> all;
  for (const auto& times : found) all.insert(all.end(), times.begin(), times.end());
  return all;
}

TEST(LinkTimes, FindTheLinksOfTheModel) {
  const PairCluster truth = cluster_of_links({{0, 100e6, 1e6}, {50e6, 0, 10e6}, {2e6, 40e6, 0}},
                                             {{0, 1e-3, 20e-3}, {1e-3, 0, 5e-3}, {30e-3, 5e-3, 0}});
  const auto times =
      times_in_virtual_time(truth, {.sizes = {1 << 10, 1 << 14, 1 << 18, 1 << 20}, .repeat = 3});
  const PairCluster found = cluster_of(devices(3), "found", times);
  for (std::size_t from = 0; from < 3; ++from) {
    for (std::size_t to = 0; to < 3; ++to) {
      if (from == to) continue;
      const double rate = truth.bytes_per_second[from][to];
      EXPECT_THAT(found.bytes_per_second[from][to], DoubleNear(rate, 1e-3 * rate)) << from << " " << to;
      const double latency = (truth.latency_seconds[from][to] + truth.latency_seconds[to][from]) / 2;
      EXPECT_THAT(found.latency_seconds[from][to], DoubleNear(latency, 2e-6)) << from << " " << to;
    }
  }
}

TEST(LinkTimes, StopAtMessagesThatTakeTooLong) {
  const PairCluster truth = cluster_of_links({{0, 1e6}, {1e9, 0}}, {{0, 0}, {0, 0}});
  const auto times = times_in_virtual_time(truth, {.sizes = {1'000, 10'000, 100'000, 200'000, 300'000},
                                                   .repeat = 1,
                                                   .longest = std::chrono::milliseconds(50)});
  ASSERT_EQ(times.size(), 2U);
  std::vector<std::int64_t> sizes;
  for (const RoundTrip& trip : times[0].trips) sizes.push_back(trip.bytes);
  EXPECT_THAT(sizes, ::testing::ElementsAre(1, 1'000, 10'000));
  EXPECT_EQ(times[1].trips.size(), 6U);  // the way back is fast
}

// By hand: 3 us there and back, and 2 ns a byte from rank 0, 4 ns from rank 1.
TEST(LinkTimes, AreFittedByDirection) {
  const std::vector<PairTimes> times = {
      {.from = 0, .to = 1, .trips = {{1, 3e-6}, {1'000, 5e-6}, {10'000, 23e-6}}},
      {.from = 1, .to = 0, .trips = {{1, 5e-6}, {1'000, 9e-6}, {10'000, 45e-6}}}};
  const PairCluster cluster = cluster_of(devices(2), "by hand", times);
  EXPECT_THAT(cluster.bytes_per_second[0][1], DoubleNear(0.5e9, 1e6));
  EXPECT_THAT(cluster.bytes_per_second[1][0], DoubleNear(0.25e9, 1e6));
  EXPECT_DOUBLE_EQ(cluster.latency_seconds[0][1], 2e-6);
  EXPECT_DOUBLE_EQ(cluster.latency_seconds[1][0], 2e-6);
  EXPECT_LT(fit_link_of_pair(times[0]).worst_residual, 1e-3);
}

TEST(LinkTimes, RefuseWhatTellsNothing) {
  EXPECT_THAT(report_of([] {
                fit_link_of_pair({.from = 2, .to = 5, .trips = {{1, 3e-6}, {1'000, 2e-6}, {10'000, 1e-6}}});
              }),
              AllOf(HasSubstr("from rank 2 to rank 5"), HasSubstr("larger --sizes")));
  EXPECT_THAT(report_of([] { cluster_of(devices(2), "half", {{.from = 0, .to = 1, .trips = {{1, 1e-6}}}}); }),
              HasSubstr("fitted"));
  EXPECT_THAT(report_of([] { cluster_of(devices(2), "none", {}); }), HasSubstr("was not measured"));
}

TEST(LinkTimes, NoticeBytesThatChangedOnTheirWay) {
  std::vector<std::byte> memory(8);
  const PairWire wire{.memory = memory, .carry = [](int, int, std::int64_t) {}};
  EXPECT_THAT(report_of([&] { time_link(1, 0, 1, wire, {.sizes = {8}}); }),
              AllOf(HasSubstr("TransportError"), HasSubstr("from rank 0 to rank 1 arrived wrong")));
}

TEST(LinkTimes, AreThoseOfAllPairsOnEveryRank) {
  std::vector<std::vector<PairTimes>> found(3);
  const auto reports =
      comm::testing::run_on_threads(backends::testing::make_shm_threads(3), {}, [&](Group& group) {
        found[index_of(group.rank())] = time_links(group, {.sizes = {100, 10'000}, .repeat = 2});
      });
  EXPECT_THAT(reports, Each("ok"));
  EXPECT_THAT(found, Each(found[0]));
  std::vector<std::pair<int, int>> pairs;
  for (const PairTimes& times : found[0]) {
    pairs.emplace_back(times.from, times.to);
    ASSERT_EQ(times.trips.size(), 3U);
    EXPECT_EQ(times.trips[2].bytes, 10'000);
    for (const RoundTrip& trip : times.trips) EXPECT_GT(trip.seconds, 0);
  }
  EXPECT_THAT(pairs, ::testing::ElementsAre(std::pair(0, 1), std::pair(0, 2), std::pair(1, 0),
                                            std::pair(1, 2), std::pair(2, 0), std::pair(2, 1)));
}

}  // namespace
}  // namespace dear::bench_collectives::link_times_test
