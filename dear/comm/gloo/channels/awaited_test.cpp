#include "dear/comm/awaited/channels/awaited.h"

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/os/testing/reserved_port.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/awaited/channels/transfer_queue.h"
#include "dear/comm/channels/testing/channels.h"
#include "dear/comm/gloo/channels/gloo.h"

namespace dear::channels::awaited_test {
namespace {

using os::testing::run_on_threads;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::int64_t count, int seed) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return bytes;
}

void wait_for(Channels& channels, std::initializer_list<const Transfer*> transfers,
              Deadline deadline = Deadline::after(std::chrono::seconds(60))) {
  for (const Transfer* transfer : transfers) {
    while (!transfer->done) channels.wait([] { return "wait in a test"; }, deadline);
  }
}

Transfer send(int peer, Tag tag, Bytes& bytes) {
  return {Transfer::Direction::send, peer, tag, bytes.data(), static_cast<std::int64_t>(bytes.size())};
}
Transfer receive(int peer, Tag tag, Bytes& bytes) {
  return {Transfer::Direction::receive, peer, tag, bytes.data(), static_cast<std::int64_t>(bytes.size())};
}

std::vector<std::string> run(int size, const std::function<void(Channels&)>& body) {
  const os::testing::ReservedPort port;
  return os::testing::run_on_threads(size, [&](int rank) {
    const auto channels = make_awaited(open_gloo({.rank = rank,
                                                  .size = size,
                                                  .master_address = "127.0.0.1",
                                                  .master_port = port.number(),
                                                  .deadline = Deadline::after(std::chrono::seconds(60))}));
    body(*channels);
  });
}

// Begins one message, keeps its memory, and refuses the next.
class Refusing : public PointToPoint {
 public:
  class Begun : public Posted {
   public:
    bool wait(const std::atomic<bool>& interrupted) override {
      interrupted.wait(false);
      return false;
    }
    void interrupt() noexcept override {}
    bool is_complete() override { return false; }
    void break_off() override {}
  };
  ~Refusing() override { delete kept_; }  // the frame, which its line has left to it
  int rank() const override { return 0; }
  int size() const override { return 2; }
  const char* description() const override { return "refusing"; }
  std::unique_ptr<Posted> send(void* data, std::int64_t bytes, int peer, int tag) override {
    return receive(data, bytes, peer, tag);
  }
  std::unique_ptr<Posted> receive(void* data, std::int64_t bytes, int, int) override {
    if (kept_ != nullptr) throw std::runtime_error("no more");
    EXPECT_EQ(bytes, static_cast<std::int64_t>(sizeof(Frame)));
    kept_ = static_cast<Frame*>(data);
    return std::make_unique<Begun>();
  }
  bool forgets_memory() const override { return false; }
  void write() const { kept_->bytes = 1; }  // as it may at any time

 private:
  Frame* kept_ = nullptr;
};

// The frame of a message whose content is refused stays for the messaging library.
TEST(AwaitedLine, KeepsWhatTheLibraryStillUses) {
  Refusing point_to_point;
  CompletionQueue completions;
  Bytes bytes = bytes_of(1 << 20, 1);
  Transfer transfer = receive(1, 0, bytes);
  {
    TransferQueue line(point_to_point, 1, Transfer::Direction::receive, completions,
                       [](const std::string&) {});
    EXPECT_THROW(line.start(transfer), std::runtime_error);
    EXPECT_FALSE(line.busy());
  }
  point_to_point.write();
}

TEST(AwaitedChannels, CarryMessagesOfEverySizeInOrder) {
  const auto reports = run(3, [](Channels& channels) {
    constexpr std::array<std::int64_t, 9> kSizes{0, 1, 247, 248, 4096, 4096, 4096, 3'000'017, 249};
    const int next = (channels.rank() + 1) % 3;
    const int previous = (channels.rank() + 2) % 3;
    std::vector<Bytes> sent;
    std::vector<Bytes> received;
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      sent.push_back(bytes_of(kSizes[i], channels.rank() + static_cast<int>(i)));
      received.emplace_back(static_cast<std::size_t>(kSizes[i]));
    }
    std::vector<Transfer> transfers;
    transfers.reserve(2 * kSizes.size());
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      for (Transfer transfer : {send(next, 5, sent[i]), receive(previous, 5, received[i])}) {
        transfer.agreed = i % 2 == 1;
        channels.start(transfers.emplace_back(transfer));
      }
    }
    for (const Transfer& transfer : transfers) wait_for(channels, {&transfer});
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      EXPECT_EQ(received[i], bytes_of(kSizes[i], previous + static_cast<int>(i))) << "message " << i;
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(AwaitedChannels, TellTagsApart) {
  const auto reports = run(2, [](Channels& channels) {
    Bytes first = bytes_of(1000, 1);
    Bytes second = bytes_of(1000, 2);
    if (channels.rank() == 0) {
      Transfer one = send(1, 1, first);
      Transfer two = send(1, kMostTag, second);
      channels.start(one);
      channels.start(two);
      wait_for(channels, {&one, &two});
      return;
    }
    Bytes got(1000);
    Transfer two = receive(0, kMostTag, got);
    channels.start(two);
    wait_for(channels, {&two});
    EXPECT_EQ(got, second);
    Transfer one = receive(0, 1, got);
    channels.start(one);
    wait_for(channels, {&one});
    EXPECT_EQ(got, first);
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(AwaitedChannels, DoWhatEveryChannelDoes) {
  for (const int size : {2, 3, 4}) EXPECT_THAT(run(size, testing::check_channels), Each("ok"));
  EXPECT_THAT(run(2, testing::check_wrong_length), Each("ok"));
}

TEST(AwaitedChannels, AnotherLengthIsAnErrorThatNamesBothOnEveryRank) {
  for (const auto& [sent, expected] :
       std::vector<std::pair<int, int>>{{8, 16}, {5000, 16}, {16, 5000}, {5000, 6000}}) {
    const auto reports = run(3, [sent = sent, expected = expected](Channels& channels) {
      Bytes bytes(static_cast<std::size_t>(channels.rank() == 0 ? sent : expected));
      if (channels.rank() < 2) {
        Transfer transfer = channels.rank() == 0 ? send(1, 3, bytes) : receive(0, 3, bytes);
        channels.start(transfer);
        wait_for(channels, {&transfer});
      }
      Bytes answer(4);
      Transfer never = receive((channels.rank() + 1) % 3, 4, answer);
      channels.start(never);
      wait_for(channels, {&never});
    });
    EXPECT_THAT(reports,
                Each(AllOf(StartsWith("TransportError: rank 1 received"), HasSubstr(std::to_string(sent)),
                           HasSubstr(std::to_string(expected)), HasSubstr("rank 0"))));
  }
}

TEST(AwaitedChannels, TheDeadlineNamesWhoIsMissing) {
  const auto reports = run(3, [](Channels& channels) {
    Bytes bytes(300);
    if (channels.rank() == 1)
      return channels.wait([] { return "wait"; }, Deadline::after(std::chrono::seconds(60)));
    Transfer never = receive(1, 4, bytes);
    channels.start(never);
    wait_for(channels, {&never},
             Deadline::after(std::chrono::duration<double>(channels.rank() == 0 ? 0.05 : 60)));
  });
  EXPECT_THAT(reports[0], AllOf(StartsWith("TimeoutError: rank 0 gave up"), HasSubstr("rank 1")));
  EXPECT_THAT(reports[1], StartsWith("TransportError: rank 0 gave up"));
  EXPECT_THAT(reports[2], StartsWith("TransportError: rank 0 gave up"));
}

TEST(AwaitedChannels, AbortReachesAllWithItsReason) {
  const auto reports = run(3, [](Channels& channels) {
    Bytes bytes(300);
    if (channels.rank() == 2) channels.abort("rank 2 failed: it was asked to");
    Transfer never = receive((channels.rank() + 1) % 3, 4, bytes);
    channels.start(never);
    wait_for(channels, {&never});
  });
  EXPECT_THAT(reports, Each(ContainsRegex("^TransportError: rank 2 .*asked to")));
}

TEST(AwaitedChannels, WhoLeavesHurtsOnlyThoseWhoStillNeedIt) {
  // Rank 1 has seen that its last message has arrived.
  std::promise<void> seen;
  const auto rank_1_is_done = seen.get_future().share();
  const auto reports = run(3, [&](Channels& channels) {
    Bytes bytes(70'000);
    if (channels.rank() == 0) {
      Transfer transfer = send(1, 1, bytes);
      channels.start(transfer);
      return wait_for(channels, {&transfer});
    }
    if (channels.rank() == 1) {
      Transfer transfer = receive(0, 1, bytes);
      channels.start(transfer);
      wait_for(channels, {&transfer});
      Transfer more = send(2, 1, bytes);
      channels.start(more);
      wait_for(channels, {&more});
      return seen.set_value();
    }
    Transfer transfer = receive(1, 1, bytes);
    channels.start(transfer);
    wait_for(channels, {&transfer});
    rank_1_is_done.wait();
    Transfer never = receive(0, 1, bytes);
    channels.start(never);
    wait_for(channels, {&never});
  });
  EXPECT_EQ(reports[0], "ok");
  EXPECT_EQ(reports[1], "ok");
  EXPECT_THAT(reports[2], StartsWith("TransportError: rank 0 left"));
}

}  // namespace
}  // namespace dear::channels::awaited_test
