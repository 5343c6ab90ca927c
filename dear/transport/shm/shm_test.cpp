#include "dear/transport/shm/shm.h"

#include <atomic>
#include <ctime>
#include <random>
#include <signal.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"
#include "dear/transport/shm/ring.h"
#include "dear/transport/testing/channels.h"
#include "dear/transport/testing/ranks.h"

namespace dear::transport::shm_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::report_of;
using testing::run_in_processes;
using testing::run_on_threads;
using ::testing::StartsWith;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }
std::string meeting() { return "wait in a test"; }

std::vector<std::string> on_threads(int size, const std::function<void(Channels&)>& body) {
  auto channels = make_shm_channels_threads(size);
  return run_on_threads(size, [&](int rank) {
    const auto mine = std::move(channels[static_cast<std::size_t>(rank)]);
    body(*mine);
  });
}

// Of processes that were forked from this one: they tell each other their numbers in shared memory.
class Family {
 public:
  explicit Family(int size)
      : size_(size),
        segment_(Segment::create(shm_channels_bytes(size), "a test")),
        numbers_(Segment::create(static_cast<std::int64_t>(sizeof(std::atomic<pid_t>)) * size, "a test")) {}

  std::unique_ptr<Channels> join(int rank) {
    auto* numbers = reinterpret_cast<std::atomic<pid_t>*>(numbers_->data());
    numbers[rank].store(getpid());
    std::vector<FileDescriptor> processes;
    for (int other = 0; other < size_; ++other) {
      while (numbers[other].load() == 0) {
        std::this_thread::yield();
      }
      processes.push_back(watch_process(numbers[other].load()));
    }
    auto channels = make_shm_channels(segment_, Peers(std::move(processes)), rank, size_);
    // Nobody ends before all have opened all.
    std::vector<Transfer> transfers;
    transfers.reserve(2 * static_cast<std::size_t>(size_));
    for (int other = 0; other < size_; ++other) {
      if (other != rank) {
        for (const auto direction : {Transfer::Direction::send, Transfer::Direction::receive}) {
          channels->start(transfers.emplace_back(Transfer{.direction = direction, .peer = other}));
        }
      }
    }
    const auto done = [](const Transfer& one) { return one.done; };
    while (!std::all_of(transfers.begin(), transfers.end(), done)) {
      channels->wait(meeting, soon());
    }
    return channels;
  }

 private:
  int size_;
  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Segment> numbers_;
};

// A message to and from each peer, over and over.
void chat(Channels& channels, std::int64_t bytes, std::chrono::duration<double> timeout) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<Transfer> transfers;
  memory.reserve(2 * static_cast<std::size_t>(channels.size()));
  transfers.reserve(memory.capacity());
  for (int peer = 0; peer < channels.size(); ++peer) {
    for (const auto direction : {Transfer::Direction::receive, Transfer::Direction::send}) {
      if (peer != channels.rank()) {
        memory.emplace_back(static_cast<std::size_t>(bytes));
        transfers.push_back(
            {.direction = direction, .peer = peer, .data = memory.back().data(), .bytes = bytes});
        channels.start(transfers.back());
      }
    }
  }
  while (!std::all_of(transfers.begin(), transfers.end(), [](const Transfer& one) { return one.done; })) {
    channels.wait(meeting, Deadline::after(timeout));
  }
}

class ShmChannels : public ::testing::TestWithParam<int> {};
TEST_P(ShmChannels, OfThreadsKeepTheContract) {
  EXPECT_THAT(on_threads(GetParam(), [](Channels& channels) { testing::check_channels(channels); }),
              Each("ok"));
}
TEST_P(ShmChannels, OfProcessesKeepTheContract) {
  Family family(GetParam());
  EXPECT_THAT(run_in_processes(GetParam(), [&](int rank) { testing::check_channels(*family.join(rank)); }),
              Each("ok"));
}
INSTANTIATE_TEST_SUITE_P(Sizes, ShmChannels, ::testing::Values(1, 2, 3, 5, 8));

TEST(Shm, AWrongLengthNamesBoth) {
  EXPECT_THAT(on_threads(2, [](Channels& channels) { testing::check_wrong_length(channels); }), Each("ok"));
}

TEST(Shm, AnAbortReachesThoseWhoSleep) {
  const auto reports = on_threads(3, [](Channels& channels) {
    if (channels.rank() == 1) {
      channels.abort("rank 1 failed: the disk is full");
    }
    chat(channels, 100, std::chrono::seconds(60));
  });
  EXPECT_THAT(reports, Each("TransportError: rank 1 failed: the disk is full"));
}

TEST(Shm, TheDeadlineNamesWhoDidNotSend) {
  std::atomic<int> over = 0;
  const auto reports = on_threads(3, [&](Channels& channels) {
    if (channels.rank() != 1) {
      const auto count = [&] { ++over; };
      try {
        chat(channels, 100, std::chrono::milliseconds(300));
      } catch (...) {
        count();
        throw;
      }
    }
    while (over.load() < 2) {
      std::this_thread::yield();
    }
  });
  EXPECT_THAT(reports[0], AllOf(StartsWith("TimeoutError: rank 1 did not come within "),
                                HasSubstr(" while others wait in a test: ")));
  EXPECT_EQ(reports[2], reports[0]);
}

TEST(Shm, ARankThatLeavesIsNamedButWhatItSentBeforeCounts) {
  const auto reports = on_threads(3, [](Channels& channels) {
    for (int round = 0; round < (channels.rank() == 2 ? 3 : 4); ++round) {
      chat(channels, 5000, std::chrono::seconds(60));
    }
  });
  EXPECT_EQ(reports[2], "ok");
  EXPECT_EQ(reports[0],
            "TransportError: rank 2 left the group while others wait in a test: every rank must issue the "
            "same collectives");
  EXPECT_EQ(reports[1], reports[0]);
}

TEST(Shm, DeathAtRandomMomentsIsNoticedAndNamed) {
  std::mt19937 generator(31);
  std::uniform_int_distribution<int> microseconds(1, 4000);
  for (int round = 0; round < 25; ++round) {
    const int victim = round % 3;
    const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = microseconds(generator)}};
    Family family(3);
    const auto reports = run_in_processes(3, [&](int rank) {
      const auto channels = family.join(rank);
      if (rank == victim) {
        signal(SIGALRM, SIG_DFL);
        setitimer(ITIMER_REAL, &timer, nullptr);
      }
      for (;;) {
        chat(*channels, 300'000, std::chrono::seconds(60));
      }
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(reports[static_cast<std::size_t>(rank)],
                  rank == victim ? StartsWith("killed by signal")
                                 : StartsWith(fmt::format("TransportError: rank {} (pid ", victim)));
    }
  }
  EXPECT_FALSE(testing::has_children());
}

TEST(Shm, AStopIsNamedAtTheDeadlineAndWaitingCostsNextToNothing) {
  Family family(2);
  const auto reports =
      run_in_processes(2,
                       [&](int rank) {
                         const auto channels = family.join(rank);
                         if (rank == 1) {
                           raise(SIGSTOP);
                         }
                         const std::clock_t before = std::clock();
                         EXPECT_THAT(report_of([&] { chat(*channels, 1'000'000, std::chrono::seconds(1)); }),
                                     AllOf(StartsWith("TimeoutError: rank 1 (pid "),
                                           HasSubstr("stopped by a signal (continue with: kill -CONT ")));
                         EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
                       },
                       {1});
  EXPECT_EQ(reports[0], "ok");
}

TEST(Shm, AForkedChildIsNotTheRank) {
  Family family(2);
  const auto reports = run_in_processes(2, [&](int rank) {
    auto channels = family.join(rank);
    EXPECT_THAT(run_in_processes(1, [&](int) { channels.reset(); }), Each("ok"));
    chat(*channels, 100, std::chrono::seconds(60));
  });
  EXPECT_THAT(reports, Each("ok"));
}

}  // namespace
}  // namespace dear::transport::shm_test
