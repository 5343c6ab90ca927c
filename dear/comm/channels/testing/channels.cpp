#include "dear/comm/channels/testing/channels.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/vocabulary/error.h"

namespace dear::channels::testing {
namespace {

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }
std::string testing_them() { return "test the channels"; }

// A transfer with the memory it needs, and what is to be found there.
struct Message {
  std::vector<std::byte> expected;
  std::vector<std::byte> bytes;
  Transfer transfer;
};

class Mailbag {
 public:
  explicit Mailbag(Channels& channels) : channels_(channels) {}

  void send(int to, Tag tag, int number, std::int64_t bytes) {
    start(Transfer::Direction::send, to, tag, message_of(channels_.rank(), to, tag, number, bytes));
  }
  void receive(int from, Tag tag, int number, std::int64_t bytes) {
    start(Transfer::Direction::receive, from, tag, message_of(from, channels_.rank(), tag, number, bytes));
  }
  void finish() {
    while (std::any_of(messages_.begin(), messages_.end(), [](auto& one) { return !one.transfer.done; })) {
      channels_.wait(testing_them, patience());
    }
    for (const Message& one : messages_) {
      EXPECT_TRUE(one.bytes == one.expected) << one.bytes.size() << " bytes with tag " << one.transfer.tag
                                             << ", rank " << channels_.rank() << " and " << one.transfer.peer;
    }
    messages_.clear();
  }

 private:
  void start(Transfer::Direction direction, int peer, Tag tag, std::vector<std::byte> content) {
    Message& message = messages_.emplace_back();
    message.bytes = content;
    message.expected = std::move(content);
    if (direction == Transfer::Direction::receive) {
      std::fill(message.bytes.begin(), message.bytes.end(), std::byte{0});
    }
    message.transfer = {.direction = direction,
                        .peer = peer,
                        .tag = tag,
                        .data = message.bytes.data(),
                        .bytes = static_cast<std::int64_t>(message.bytes.size())};
    channels_.start(message.transfer);
  }

  Channels& channels_;
  std::deque<Message> messages_;
};

template <typename Body>
void for_each_peer(const Channels& channels, const Body& body) {
  for (int step = 1; step < channels.size(); ++step) {
    body((channels.rank() + step) % channels.size());
  }
}

}  // namespace

std::vector<std::byte> message_of(int from, int to, Tag tag, int number, std::int64_t bytes) {
  std::vector<std::byte> content(static_cast<std::size_t>(bytes));
  std::uint64_t state = (static_cast<std::uint64_t>(from) << 48U) ^ (static_cast<std::uint64_t>(to) << 32U) ^
                        (static_cast<std::uint64_t>(number) << 16U) ^ tag;
  for (std::size_t at = 0; at < content.size(); at += sizeof state) {
    state = state * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    const std::uint64_t mixed = state ^ (state >> 32U) ^ (state >> 48U);
    std::memcpy(content.data() + at, &mixed, std::min(sizeof mixed, content.size() - at));
  }
  return content;
}

void check_lengths(Channels& channels) {
  Mailbag bag(channels);
  for (const std::int64_t bytes :
       {0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 4095, 4096, 65'536, 130'000, 4'000'001 / channels.size()}) {
    for_each_peer(channels, [&](int peer) {
      bag.receive(peer, 3, 0, bytes);
      bag.send(peer, 3, 0, bytes);
    });
    bag.finish();
  }
}

void check_order_and_tags(Channels& channels) {
  constexpr int kMany = 40;
  Mailbag bag(channels);
  // Both ends of a pair get the same length.
  const auto length = [](int from, int to, int number) {
    std::mt19937 generator(static_cast<unsigned>(from * 10'000 + to * 100 + number));
    return std::uniform_int_distribution<std::int64_t>(0, number % 5 == 0 ? 100'000 : 300)(generator);
  };
  const auto tag = [](int number) { return number % 3 == 2 ? kMostTag : static_cast<Tag>(number % 3); };
  for_each_peer(channels, [&](int peer) {
    for (const int remainder : {1, 2, 0}) {
      for (int number = remainder; number < kMany; number += 3) {
        bag.receive(peer, tag(number), number, length(peer, channels.rank(), number));
      }
    }
    for (int number = 0; number < kMany; ++number) {
      bag.send(peer, tag(number), number, length(channels.rank(), peer, number));
    }
  });
  bag.finish();
}

void check_early_and_late(Channels& channels) {
  Mailbag early(channels);
  Mailbag late(channels);
  Mailbag token(channels);
  // Whoever is told by its neighbour that a message is under way has not asked for it before.
  const int next = (channels.rank() + 1) % channels.size();
  const int previous = (channels.rank() + channels.size() - 1) % channels.size();
  if (channels.size() == 1) {
    return;
  }
  for (int round = 0; round < 10; ++round) {
    const std::int64_t bytes = round * 40'000;
    early.send(next, 5, round, bytes);
    token.send(next, 6, round, 8);
    token.receive(previous, 6, round, 8);
    token.finish();
    late.receive(previous, 5, round, bytes);
    late.finish();
    early.finish();
  }
}

void check_channels(Channels& channels) {
  check_lengths(channels);
  check_order_and_tags(channels);
  check_early_and_late(channels);
}

void check_wrong_length(Channels& channels) {
  Mailbag bag(channels);
  const std::string report = os::testing::report_of([&] {
    bag.receive(1 - channels.rank(), 0, 0, 100);
    bag.send(1 - channels.rank(), 0, 0, channels.rank() == 0 ? 100 : 104);
    bag.finish();
    // Only rank 0 expects something else; rank 1 learns of it.
    bag.receive(1 - channels.rank(), 0, 1, 1);
    bag.finish();
  });
  EXPECT_THAT(report, ::testing::StartsWith("TransportError: "));
  EXPECT_THAT(report, ::testing::HasSubstr("104"));
  EXPECT_THAT(report, ::testing::HasSubstr("100"));
  EXPECT_EQ(os::testing::report_of([&] { channels.progress(); }), report);
}

}  // namespace dear::channels::testing
