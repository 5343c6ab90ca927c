#include "dear/transport/shaped/shaped.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"
#include "dear/transport/shm/shm.h"
#include "dear/transport/testing/channels.h"
#include "dear/transport/testing/ranks.h"

namespace dear::transport::shaped_test {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::run_on_threads;

Network network(double alpha, double beta) {
  return {.name = "a test's", .link = {.alpha_seconds = alpha, .beta_seconds_per_byte = beta}};
}

std::vector<std::string> on_threads(int size, const Network& network,
                                    const std::function<void(Channels&)>& body) {
  auto channels = make_shm_channels_threads(size);
  return run_on_threads(size, [&](int rank) {
    const auto mine = make_shaped_channels(std::move(channels[static_cast<std::size_t>(rank)]), network);
    body(*mine);
  });
}

// When each of these transfers, all of 1000 bytes, was seen to be done.
std::vector<SteadyTime> carry(Channels& channels, std::vector<Transfer> transfers) {
  std::vector<std::byte> memory(1000 * transfers.size());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    transfers[i].data = memory.data() + 1000 * i;
    transfers[i].bytes = 1000;
    channels.start(transfers[i]);
  }
  std::vector<SteadyTime> ends(transfers.size());
  for (std::size_t done = 0; done < transfers.size();) {
    channels.wait([] { return "wait in a test"; }, Deadline::after(std::chrono::seconds(60)));
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (transfers[i].done && ends[i] == SteadyTime{}) {
        ends[i] = SteadyClock::now();
        ++done;
      }
    }
  }
  return ends;
}

constexpr auto kSend = Transfer::Direction::send;
constexpr auto kReceive = Transfer::Direction::receive;
// A message of 1000 bytes takes 3 ms.
const Network kSlow = network(1e-3, 2e-6);

TEST(Shaped, KeepsTheContract) {
  EXPECT_THAT(
      on_threads(3, network(1e-6, 1e-11), [](Channels& channels) { testing::check_channels(channels); }),
      Each("ok"));
  EXPECT_THAT(on_threads(2, kSlow, [](Channels& channels) { testing::check_wrong_length(channels); }),
              Each("ok"));
}

TEST(Shaped, NothingArrivesBeforeItsTime) {
  const SteadyTime begin = SteadyClock::now();
  const auto reports = on_threads(2, kSlow, [&](Channels& channels) {
    const int peer = 1 - channels.rank();
    const auto ends = carry(channels, {{.direction = kSend, .peer = peer},
                                       {.direction = kReceive, .peer = peer},
                                       {.direction = kSend, .peer = peer},
                                       {.direction = kReceive, .peer = peer}});
    EXPECT_GE(ends[0] - begin, milliseconds(3));
    EXPECT_GE(ends[1] - begin, milliseconds(3));
    // One after another.
    EXPECT_GE(ends[2] - begin, milliseconds(6));
    EXPECT_GE(ends[3] - begin, milliseconds(6));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Shaped, TwoSendersShareTheReceiversPortAndTwoReceiversTheSenders) {
  const SteadyTime begin = SteadyClock::now();
  const auto reports = on_threads(3, kSlow, [&](Channels& channels) {
    if (channels.rank() == 0) {
      auto ends = carry(channels, {{.direction = kReceive, .peer = 1}, {.direction = kReceive, .peer = 2}});
      EXPECT_GE(*std::max_element(ends.begin(), ends.end()) - begin, milliseconds(6));
      carry(channels, {{.direction = kSend, .peer = 1}, {.direction = kSend, .peer = 2}});
    } else {
      carry(channels, {{.direction = kSend, .peer = 0}});
      const auto ends = carry(channels, {{.direction = kReceive, .peer = 0}});
      // Rank 0 began to send after 6 ms, to rank 1 first.
      EXPECT_GE(ends[0] - begin, milliseconds(channels.rank() == 1 ? 9 : 12));
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Shaped, WhatTheTimeoutDoesNotAllowIsAnErrorOnAllRanks) {
  const auto reports = on_threads(2, network(3600, 0), [](Channels& channels) {
    Transfer transfer{.direction = channels.rank() == 0 ? kSend : kReceive, .peer = 1 - channels.rank()};
    channels.start(transfer);
    // Only the sender's runs out: the receiver learns of it.
    channels.wait([] { return "wait in a test"; },
                  Deadline::after(channels.rank() == 0 ? milliseconds(5) : milliseconds(60'000)));
  });
  EXPECT_THAT(reports, Each(HasSubstr("does not carry a message between rank")));
  EXPECT_THROW(make_shaped_channels(nullptr, network(-1, 0)), ConfigError);
}

}  // namespace
}  // namespace dear::transport::shaped_test
