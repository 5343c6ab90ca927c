#include "dear/comm/shaped/pair_links.h"

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/channels/testing/channels.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/group/private_region.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/group/testing/groups.h"
#include "dear/comm/shaped/testing/virtual_channels.h"

namespace dear::channels::pair_links_test {
namespace {

using os::testing::report_of;
using os::testing::run_on_threads;
using ::testing::AllOf;
using testing::cluster_of_links;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Direction = Transfer::Direction;

constexpr double kInfinitelyFast = 1e15;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

// What a rank of these tests does, in the virtual time of its world.
class Rank {
 public:
  Rank(Channels& channels, std::function<SteadyTime()> now)
      : channels_(channels), now_(std::move(now)), start_(now_()) {}

  [[nodiscard]] int number() const { return channels_.rank(); }

  Transfer& send(int to, std::int64_t bytes, Tag tag = 0) { return start(Direction::send, to, bytes, tag); }
  Transfer& receive(int from, std::int64_t bytes, Tag tag = 0) {
    return start(Direction::receive, from, bytes, tag);
  }
  // Milliseconds after the start of the world at which the transfer became done, for those that are awaited
  // one after another.
  double done_at(const Transfer& transfer) {
    while (!transfer.done) channels_.wait([] { return "wait in a test"; }, soon());
    return std::chrono::duration<double, std::milli>(now_() - start_).count();
  }

 private:
  Transfer& start(Direction direction, int peer, std::int64_t bytes, Tag tag) {
    memory_.emplace_back(static_cast<std::size_t>(bytes));
    Transfer& transfer = transfers_.emplace_back(Transfer{
        .direction = direction, .peer = peer, .tag = tag, .data = memory_.back().data(), .bytes = bytes});
    channels_.start(transfer);
    return transfer;
  }

  Channels& channels_;
  std::function<SteadyTime()> now_;
  SteadyTime start_;
  std::deque<std::vector<std::byte>> memory_;
  std::deque<Transfer> transfers_;
};

// The reports of ranks that run `body` over links of this cluster in virtual time.
std::vector<std::string> in_virtual_time(const PairCluster& cluster, const std::function<void(Rank&)>& body) {
  const int size = static_cast<int>(cluster.devices.size());
  testing::VirtualWorld world = testing::make_virtual_world(size);
  return run_on_threads(size, [&](int rank) {
    const auto mine = make_pair_links(std::move(world.channels[index_of(rank)]), cluster, world.now);
    Rank self(*mine, world.now);
    body(self);
  });
}

// Moments are rounded to nanoseconds.
auto milliseconds(double value) { return ::testing::DoubleNear(value, 1e-5); }

// 0 to 1: 1 MB/s and 5 ms. 1 to 0: 4 MB/s and 1 ms.
PairCluster uneven_pair() { return cluster_of_links({{0, 1e6}, {4e6, 0}}, {{0, 5e-3}, {1e-3, 0}}); }

TEST(PairLinks, AMessageTakesLatencyAndBytesOfItsDirection) {
  const auto reports = in_virtual_time(uneven_pair(), [](Rank& self) {
    if (self.number() == 0) {
      EXPECT_THAT(self.done_at(self.send(1, 8000)), milliseconds(8));  // sent, and on its way still
      EXPECT_THAT(self.done_at(self.receive(1, 8000)), milliseconds(13 + 2 + 1));
    } else {
      EXPECT_THAT(self.done_at(self.receive(0, 8000)), milliseconds(8 + 5));
      EXPECT_THAT(self.done_at(self.send(0, 8000)), milliseconds(13 + 2));
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(PairLinks, ALinkCarriesOneMessageAtATime) {
  const auto reports = in_virtual_time(uneven_pair(), [](Rank& self) {
    if (self.number() == 0) {
      const std::array<Transfer*, 3> sent{&self.send(1, 2000, 7), &self.send(1, 0, 8),
                                          &self.send(1, 3000, 9)};
      EXPECT_THAT(self.done_at(*sent[0]), milliseconds(2));
      EXPECT_THAT(self.done_at(*sent[1]), milliseconds(2));
      EXPECT_THAT(self.done_at(*sent[2]), milliseconds(5));
    } else {
      const Transfer& last = self.receive(0, 3000, 9);
      const Transfer& first = self.receive(0, 2000, 7);
      const Transfer& empty = self.receive(0, 0, 8);
      EXPECT_THAT(self.done_at(first), milliseconds(2 + 5));
      EXPECT_THAT(self.done_at(empty), milliseconds(2 + 5));
      EXPECT_THAT(self.done_at(last), milliseconds(5 + 5));
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(PairLinks, LinksOfOtherPairsAndOfTheWayBackAreFreeMeanwhile) {
  // A second a kilobyte from 0 to 1, which holds nothing else up.
  const PairCluster cluster =
      cluster_of_links({{0, 1e3, 1e6}, {1e6, 0, 1e6}, {1e6, 1e6, 0}}, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}});
  const auto reports = in_virtual_time(cluster, [](Rank& self) {
    if (self.number() == 0) {
      const Transfer& slow = self.send(1, 1000);
      const Transfer& fast = self.send(2, 1000);
      const Transfer& back = self.receive(1, 2000);
      EXPECT_THAT(self.done_at(fast), milliseconds(1));
      EXPECT_THAT(self.done_at(back), milliseconds(2));
      EXPECT_THAT(self.done_at(slow), milliseconds(1000));
    } else if (self.number() == 1) {
      const Transfer& slow = self.receive(0, 1000);
      const Transfer& back = self.send(0, 2000);
      const Transfer& other = self.send(2, 3000);
      EXPECT_THAT(self.done_at(back), milliseconds(2));
      EXPECT_THAT(self.done_at(other), milliseconds(3));
      EXPECT_THAT(self.done_at(slow), milliseconds(1000));
    } else {
      const Transfer& from_0 = self.receive(0, 1000);
      const Transfer& from_1 = self.receive(1, 3000);
      EXPECT_THAT(self.done_at(from_0), milliseconds(1));
      EXPECT_THAT(self.done_at(from_1), milliseconds(3));
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(PairLinks, AMessageTravelsWhileItsReceiverDoesSomethingElse) {
  const PairCluster cluster =
      cluster_of_links({{0, 1e6, 1e6}, {1e6, 0, 1e6}, {1e6, 1e6, 0}}, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}});
  const auto reports = in_virtual_time(cluster, [](Rank& self) {
    if (self.number() == 0) self.done_at(self.send(1, 1000));
    if (self.number() == 2) self.done_at(self.send(1, 9000));
    if (self.number() == 1) {
      EXPECT_THAT(self.done_at(self.receive(2, 9000)), milliseconds(9));
      EXPECT_THAT(self.done_at(self.receive(0, 1000)), milliseconds(9));  // it came at 1 ms
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(PairLinks, RefuseAWaitThatNothingCanEnd) {
  // A kilobyte takes 1000 s.
  const PairCluster cluster = cluster_of_links({{0, 1}, {1, 0}}, {{0, 0}, {0, 0}});
  const auto reports = in_virtual_time(cluster, [](Rank& self) {
    if (self.number() == 0) {
      self.done_at(self.send(1, 1000));
    } else {
      self.done_at(self.receive(0, 1000));
    }
  });
  const auto refused = AllOf(HasSubstr("gave up its wait in a test"), HasSubstr("takes 1000 s more"),
                             HasSubstr("drawn by hand"), HasSubstr("raise the timeout"));
  EXPECT_THAT(reports, Each(refused));  // one rank of itself, the other as its peer's failure
  EXPECT_THAT(reports, ::testing::Contains(StartsWith("TimeoutError: rank ")));
}

TEST(PairLinks, PassFailuresOn) {
  const auto late = in_virtual_time(uneven_pair(), [](Rank& self) {
    if (self.number() == 1) self.done_at(self.receive(0, 1));
  });
  EXPECT_THAT(late, ElementsAre("ok", "TimeoutError: rank 1 waits too long: wait in a test"));

  auto ends = testing::make_thread_channels(2);
  const PairCluster cluster = uneven_pair();
  const auto zero = make_pair_links(std::move(ends[0]), cluster);
  const auto one = make_pair_links(std::move(ends[1]), cluster);
  zero->abort("because the test says so");
  const std::string report = report_of([&] { one->progress(); });
  EXPECT_EQ(report, "TransportError: because the test says so");
  EXPECT_EQ(report_of([&] { one->wait([] { return "wait"; }, soon()); }), report);
}

TEST(PairLinks, TakeAsManyDevicesAsRanks) {
  auto ends = testing::make_thread_channels(3);
  EXPECT_THAT(report_of([&] { make_pair_links(std::move(ends[0]), uneven_pair()); }),
              AllOf(StartsWith("ConfigError: "), HasSubstr("2 devices"), HasSubstr("3 ranks")));
  auto alone = testing::make_thread_channels(1);
  EXPECT_THAT(report_of([&] { make_pair_links(std::move(alone[0]), cluster_of_links({{0}}, {{0}})); }),
              HasSubstr("one rank alone has no links"));
}

// Every pair with a bandwidth and a latency of its own.
PairCluster uneven_cluster(int size, double least_bytes_per_second, double least_seconds) {
  PairCluster::Matrix rates(index_of(size), std::vector<double>(index_of(size)));
  PairCluster::Matrix latencies = rates;
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (from == to) continue;
      const int number = from * size + to;
      rates[index_of(from)][index_of(to)] = least_bytes_per_second * (1 + number % 5);
      latencies[index_of(from)][index_of(to)] = least_seconds * (1 + number % 3);
    }
  }
  return cluster_of_links(std::move(rates), std::move(latencies));
}

std::vector<std::string> on_threads(int size, const std::function<void(Channels&)>& body) {
  auto ends = testing::make_thread_channels(size);
  const PairCluster cluster = uneven_cluster(size, 1e9, 10e-6);
  return run_on_threads(size, [&](int rank) {
    const auto mine = make_pair_links(std::move(ends[index_of(rank)]), cluster);
    body(*mine);
  });
}

TEST(PairLinks, KeepTheContractOfChannels) {
  for (const int size : {2, 3, 5}) {
    EXPECT_THAT(on_threads(size, testing::check_channels), Each("ok")) << size;
  }
  EXPECT_THAT(on_threads(2, testing::check_wrong_length), Each("ok"));
}

// ---- Collectives.

using comm::testing::GroupBody;

std::vector<std::string> groups_in_virtual_time(const PairCluster& cluster, const GroupBody& body) {
  testing::VirtualWorld world = testing::make_virtual_world(static_cast<int>(cluster.devices.size()));
  std::vector<std::unique_ptr<Backend>> backends;
  for (auto& channels : world.channels)
    backends.push_back(backends::make_shaped(std::move(channels), cluster, {.now = world.now}));
  return comm::testing::run_on_threads(std::move(backends), {}, body);
}

TEST(PairShaped, CollectivesGiveTheSameValues) {
  const comm::testing::ConformanceOptions options{.dtypes = {DType::f32, DType::i64},
                                                  .reductions = {Reduction::sum, Reduction::average},
                                                  .counts = {17, 100'000},
                                                  .order = comm::testing::Order::fixed};
  for (const int size : {2, 3, 4}) {
    EXPECT_THAT(groups_in_virtual_time(uneven_cluster(size, 1e9, 1e-6),
                                       [&](Group& group) { comm::testing::check_group(group, options); }),
                Each("ok"))
        << size;
  }
}

TEST(PairShaped, AMeetingOfTwoTakesTheLatencyOfTheWayToEach) {
  const PairCluster cluster =
      cluster_of_links({{0, kInfinitelyFast}, {kInfinitelyFast, 0}}, {{0, 5e-3}, {3e-3, 0}});
  testing::VirtualWorld world = testing::make_virtual_world(2);
  const SteadyTime start = world.now();
  std::array<double, 2> ended{};
  EXPECT_THAT(run_on_threads(2,
                             [&](int rank) {
                               const auto backend = backends::make_shaped(
                                   std::move(world.channels[index_of(rank)]), cluster, {.now = world.now});
                               backend->run({.collective = Collective::barrier}, soon());
                               ended.at(index_of(rank)) =
                                   std::chrono::duration<double, std::milli>(world.now() - start).count();
                             }),
              Each("ok"));
  EXPECT_THAT(ended, ElementsAre(milliseconds(3), milliseconds(5)));
}

TEST(PairShaped, ABroadcastKeepsTheLinkBusyHoweverFarItReaches) {
  // The link holds 1 MB on its way.
  const PairCluster cluster = cluster_of_links({{0, 10e6}, {10e6, 0}}, {{0, 0.1}, {0.1, 0}});
  testing::VirtualWorld world = testing::make_virtual_world(2);
  const SteadyTime start = world.now();
  std::array<double, 2> ended{};
  EXPECT_THAT(
      run_on_threads(2,
                     [&](int rank) {
                       const auto backend = backends::make_shaped(std::move(world.channels[index_of(rank)]),
                                                                  cluster, {.now = world.now});
                       const Buffer buffer = comm::allocate_private(20'000'000);
                       backend->run({.collective = Collective::broadcast,
                                     .view = {.buffer = buffer, .count = 20'000'000, .dtype = DType::u8}},
                                    soon());
                       ended.at(index_of(rank)) = std::chrono::duration<double>(world.now() - start).count();
                     }),
      Each("ok"));
  EXPECT_THAT(ended[1], ::testing::DoubleNear(2.1, 0.02));  // 2 s of bytes, and a latency
}

TEST(PairShaped, ReportsNameTheCluster) {
  const auto reports = groups_in_virtual_time(uneven_pair(), [](Group& group) {
    EXPECT_EQ(group.modelled_network(),
              "drawn by hand (2 devices, 0.008 to 0.032 Gbit/s, latencies 1 ms to 5 ms)");
    EXPECT_THAT(group.description(), HasSubstr("virtual threads, over modelled links: drawn by hand"));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(PairShaped, PartsShareTheLinksOfTheirRanks) {
  auto ends = testing::make_thread_channels(3);
  const PairCluster cluster = uneven_cluster(3, 1e9, 1e-6);
  std::vector<std::unique_ptr<Backend>> backends;
  for (auto& channels : ends) backends.push_back(backends::make_shaped(std::move(channels), cluster));
  const auto reports = comm::testing::run_on_threads(std::move(backends), {}, [](Group& group) {
    const std::optional<Group> part = group.split(group.rank() == 1 ? -1 : 0, group.rank());
    if (!part) return;
    EXPECT_EQ(part->modelled_network(), group.modelled_network());
    part->barrier().wait();
  });
  EXPECT_THAT(reports, Each("ok"));
}

}  // namespace
}  // namespace dear::channels::pair_links_test
