#include "dear/comm/shm/meeting.h"

#include <array>
#include <fcntl.h>
#include <future>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/shm/socket.h"
#include "dear/comm/shm/testing/ranks.h"

namespace dear::backends::meeting_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using testing::fresh_rendezvous;
using ::testing::HasSubstr;
using testing::meet_as;
using testing::run_in_processes;
using testing::run_on_threads;
using ::testing::StartsWith;

// Enough for those who are there to come, under any load.
constexpr testing::Patience kShort{.meeting = std::chrono::seconds(1)};

// A connection to rank 0, as soon as it listens.
Socket knock(const std::string& rendezvous) {
  for (;;) {
    if (Socket socket = connect_to(rendezvous)) {
      return socket;
    }
  }
}

TEST(Meeting, BringsThreadsAndProcessesTogether) {
  const std::string rendezvous = fresh_rendezvous();
  const auto before = testing::holdings();
  const auto meet_and_pass = [&](int rank) { meet_as(rank, 4, rendezvous).barrier().wait(); };
  EXPECT_THAT(run_in_processes(4, meet_and_pass), Each("ok"));
  EXPECT_THAT(run_on_threads(4, meet_and_pass), Each("ok"));  // the same name serves again
  EXPECT_EQ(testing::holdings(), before);
  EXPECT_FALSE(testing::is_listening(rendezvous));
  EXPECT_FALSE(testing::has_children());
}

TEST(Meeting, HoldsManyRanks) {
  const std::string rendezvous = fresh_rendezvous();
  EXPECT_THAT(run_in_processes(32,
                               [&](int rank) {
                                 Group group = meet_as(rank, 32, rendezvous);
                                 const Buffer buffer = group.allocate(4096);
                                 group.all_reduce({.buffer = buffer, .count = 1024}, Reduction::sum).wait();
                               }),
              Each("ok"));
}

TEST(Meeting, OfOneNeedsNobody) {
  EXPECT_EQ(meet_as(0, 1, fresh_rendezvous()).description(), "shm, 1 rank on this host");
}

TEST(Meeting, KeepsJobsApart) {
  const std::string one = fresh_rendezvous();
  const std::string two = fresh_rendezvous();
  EXPECT_THAT(
      run_on_threads(4, [&](int rank) { meet_as(rank / 2, 2, rank % 2 == 0 ? one : two).barrier().wait(); }),
      Each("ok"));
}

TEST(Meeting, NamesTheRanksThatDoNotCome) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_on_threads(2, [&](int rank) { meet_as(rank, 4, rendezvous, kShort); });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("TimeoutError: ranks 2, 3 did not come"),
                                  HasSubstr("were all 4 started on this host"))));
  EXPECT_FALSE(testing::is_listening(rendezvous));
}

TEST(Meeting, NamesRankZeroWhenItDoesNotCome) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_on_threads(2, [&](int rank) { meet_as(rank + 1, 3, rendezvous, kShort); });
  EXPECT_THAT(reports, Each(StartsWith("TimeoutError: rank 0 did not come")));
}

TEST(Meeting, NamesTheMissingAlsoToARankThatGivesUpFirst) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_on_threads(
      3, [&](int rank) { meet_as(rank, 4, rendezvous, rank == 1 ? kShort : testing::Patience{}); });
  EXPECT_THAT(reports, Each(StartsWith("TimeoutError: rank 3 did not come")));
}

TEST(Meeting, RefusesTwoClaimsToOneRank) {
  const std::string rendezvous = fresh_rendezvous();
  const auto guests = run_on_threads(3, [&](int rank) { meet_as(rank == 2 ? 1 : rank, 3, rendezvous); });
  EXPECT_THAT(guests, Each(ContainsRegex("MismatchError: .*claim rank 1")));
  const auto hosts = run_on_threads(2, [&](int) { meet_as(0, 2, rendezvous); });
  EXPECT_THAT(hosts, Each(ContainsRegex("MismatchError: .*claim rank 0")));
}

TEST(Meeting, RefusesDifferentNumbersOfRanks) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_on_threads(2, [&](int rank) { meet_as(rank, rank == 0 ? 3 : 2, rendezvous); });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("MismatchError: rank 1 (pid "),
                                  HasSubstr("believes in 2 ranks, rank 0 in 3"))));
}

TEST(Meeting, RefusesAnotherBuild) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_on_threads(2, [&](int rank) {
    if (rank == 0) {
      meet_as(0, 2, rendezvous);
    }
    const Socket socket = knock(rendezvous);
    Message hello;
    hello.version = Message::kVersion + 1;
    hello.rank = 1;
    hello.size = 2;
    socket.send(hello);
    Message answer;
    std::vector<os::FileDescriptor> files;
    while (socket.receive(answer, files) == Socket::Received::nothing_yet) {
      socket.wait_readable(Deadline::after(std::chrono::seconds(60)));
    }
    throw MismatchError(answer.text.data());
  });
  EXPECT_THAT(reports, Each(AllOf(ContainsRegex("MismatchError: .*version 2"), HasSubstr("same build"))));
}

TEST(Meeting, IsNotDisturbedByStrangers) {
  const std::string rendezvous = fresh_rendezvous();
  std::promise<void> seen;
  const auto wait_for_strangers = seen.get_future().share();
  const auto reports = run_on_threads(3, [&](int rank) {
    if (rank == 2) {
      const Socket silent = knock(rendezvous);
      const Socket gone = knock(rendezvous);
      const Socket rude = knock(rendezvous);
      const std::string noise(5000, 'x');
      EXPECT_GT(send(rude.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
      return seen.set_value();
    }
    if (rank == 1) {
      wait_for_strangers.wait();
    }
    meet_as(rank, 2, rendezvous).barrier().wait();
  });
  EXPECT_THAT(reports, Each("ok"));
}

// Two jobs of two ranks that nothing tells apart: A0 meets B1, and B0 comes while they run.
TEST(Meeting, ASecondRankZeroAtTheRendezvousOfALivingJobIsTold) {
  const std::string rendezvous = fresh_rendezvous();
  std::array<int, 2> met{};
  std::array<int, 2> done{};
  ASSERT_EQ(::pipe2(met.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(done.data(), O_CLOEXEC), 0);
  const auto reports = run_in_processes(3, [&](int process) {
    char byte = 0;
    if (process < 2) {
      Group group = meet_as(process, 2, rendezvous);
      group.barrier().wait();
      if (process == 0) {
        EXPECT_EQ(::write(met[1], &byte, 1), 1);
      }
      EXPECT_EQ(::read(done[0], &byte, 1), 1);
      return;
    }
    EXPECT_EQ(::read(met[0], &byte, 1), 1);
    const std::string told =
        testing::report_of([&] { meet_as(0, 2, rendezvous, {.meeting = std::chrono::milliseconds(100)}); });
    EXPECT_THAT(told,
                AllOf(StartsWith("MismatchError: rank 0 of another job"), HasSubstr("DEAR_RENDEZVOUS")));
    EXPECT_EQ(::write(done[1], "12", 2), 2);
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Meeting, NamesARankThatDiesInIt) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_in_processes(3, [&](int rank) {
    if (rank != 2) {
      meet_as(rank, 4, rendezvous);
    }
    Message hello;
    hello.rank = 2;
    hello.size = 4;
    const Socket socket = knock(rendezvous);
    socket.send(hello);
    // Not before rank 1 is there to hear of it.
    Message roster;
    std::vector<os::FileDescriptor> files;
    while (!roster.has_come(1)) {
      socket.wait_readable(Deadline::after(std::chrono::seconds(60)));
      socket.receive(roster, files);
    }
    raise(SIGKILL);
  });
  EXPECT_EQ(reports[2], "killed by signal 9");
  EXPECT_THAT(reports[0], AllOf(StartsWith("TransportError: rank 2 (pid "),
                                HasSubstr("died while the ranks were meeting")));
  EXPECT_EQ(reports[1], reports[0]);
}

TEST(Meeting, NamesRankZeroWhenItDiesInIt) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_in_processes(2, [&](int rank) {
    if (rank == 1) {
      meet_as(1, 3, rendezvous);
    }
    // A rank 0 that admits a guest and is gone.
    const os::FileDescriptor listener = listen_at(rendezvous);
    Socket guest;
    while (!guest) {
      guest = accept_from(listener);
    }
    Message roster;
    roster.kind = Message::Kind::roster;
    guest.send(roster);
    raise(SIGKILL);
  });
  EXPECT_THAT(reports[1], AllOf(StartsWith("TransportError: rank 0 (pid "),
                                HasSubstr("died while the ranks were meeting")));
}

TEST(Meeting, RefusesImpossibleRanks) {
  EXPECT_THROW(meet_as(2, 2, "x"), ConfigError);
  EXPECT_THROW(meet_as(-1, 2, "x"), ConfigError);
  EXPECT_THROW(meet_as(0, 0, "x"), ConfigError);
  EXPECT_THROW(meet_as(0, Control::kMaxRanks + 1, "x"), ConfigError);
}

}  // namespace
}  // namespace dear::backends::meeting_test
