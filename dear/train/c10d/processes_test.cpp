#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <netinet/in.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"
#include "dear/base/file_descriptor.h"
#include "dear/collective/testing/conformance.h"
#include "dear/collective/testing/ranks.h"
#include "dear/train/c10d/c10d.h"
#include "dear/train/c10d/gloo.h"

// Gloo between processes, as launchers start them; and what happens when they end.
namespace dear::train::processes_test {
namespace {

using collective::testing::check_group;
using collective::testing::run_in_processes;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

int free_port() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(socket.get(), generic, length), 0);
  EXPECT_EQ(::getsockname(socket.get(), generic, &length), 0);
  return ntohs(address.sin_port);
}

Group meet(int rank, int size, int port, std::chrono::duration<double> timeout = std::chrono::seconds(60)) {
  return group_on(make_gloo({.rank = rank, .size = size, .master_port = port, .timeout = timeout}),
                  {.timeout = timeout});
}

View whole(const Buffer& buffer) { return {.buffer = buffer, .count = buffer.bytes() / 4}; }

TEST(GlooProcesses, DoEveryCollective) {
  const int port = free_port();
  EXPECT_THAT(run_in_processes(3,
                               [&](int rank) {
                                 Group group = meet(rank, 3, port);
                                 check_group(group, {.dtypes = {DType::f32, DType::bf16},
                                                     .counts = {17, 300'001},
                                                     .order = collective::testing::Order::fixed});
                                 collective::testing::check_waiting(group);
                               }),
              Each("ok"));
}

TEST(GlooProcesses, AllEndWellWhoeverLeavesFirst) {
  for (int first = 0; first < 3; ++first) {
    const int port = free_port();
    EXPECT_THAT(run_in_processes(3,
                                 [&](int rank) {
                                   Group group = meet(rank, 3, port);
                                   const Buffer buffer = group.allocate(1 << 20);
                                   group.all_reduce(whole(buffer), Reduction::sum).wait();
                                   const Pending last = group.all_gather(whole(buffer));
                                   if (rank != first)
                                     last.wait();  // the first lets the group wait as it goes
                                 }),
                Each("ok"));
  }
}

TEST(GlooProcesses, AKilledRankIsNamedByAll) {
  for (const int victim : {0, 1, 2}) {
    const int port = free_port();
    auto reports = run_in_processes(3, [&](int rank) {
      Group group = meet(rank, 3, port);
      const Buffer buffer = group.allocate(16 << 20);
      group.barrier().wait();
      if (rank == victim) raise(SIGKILL);
      for (;;) group.all_reduce(whole(buffer), Reduction::sum).wait();
    });
    EXPECT_EQ(reports[static_cast<std::size_t>(victim)], "killed by signal 9");
    reports.erase(reports.begin() + victim);
    EXPECT_THAT(reports,
                Each(AllOf(StartsWith("TransportError"), HasSubstr("rank " + std::to_string(victim)))));
  }
}

TEST(GlooProcesses, ADeathAtAnyMomentIsNamedByAll) {
  std::mt19937 generator(7);
  for (int trial = 0; trial < 6; ++trial) {
    const int victim = static_cast<int>(generator() % 3);
    const auto collectives = generator() % 20;
    const int port = free_port();
    auto reports = run_in_processes(3, [&](int rank) {
      Group group = meet(rank, 3, port);
      const Buffer buffer = group.allocate(2 << 20);
      for (unsigned i = 0;; ++i) {
        const Pending pending = group.all_reduce(whole(buffer), Reduction::sum);
        if (rank == victim && i == collectives) raise(SIGKILL);  // in the midst of it
        pending.wait();
      }
    });
    reports.erase(reports.begin() + victim);
    EXPECT_THAT(reports,
                Each(AllOf(StartsWith("TransportError"), HasSubstr("rank " + std::to_string(victim)))));
  }
}

TEST(GlooProcesses, AStoppedRankIsATimeoutThatNamesIt) {
  const int port = free_port();
  const auto reports =
      run_in_processes(3,
                       [&](int rank) {
                         Group group = group_on(make_gloo({.rank = rank, .size = 3, .master_port = port}),
                                                {.timeout = std::chrono::seconds(2)});
                         const Buffer buffer = group.allocate(16 << 20);
                         group.barrier().wait();
                         if (rank == 1) raise(SIGSTOP);
                         group.all_reduce(whole(buffer), Reduction::sum).wait();
                       },
                       {1});
  EXPECT_THAT(reports[0], AnyOf(StartsWith("TimeoutError"), StartsWith("TransportError")));
  for (const int survivor : {0, 2})
    EXPECT_THAT(reports[static_cast<std::size_t>(survivor)], HasSubstr("rank 1"));
}

TEST(GlooProcesses, ARankThatDoesNotComeIsNamed) {
  const int port = free_port();
  const auto reports =
      run_in_processes(2, [&](int rank) { meet(rank, 3, port, std::chrono::milliseconds(700)); });
  EXPECT_THAT(reports[0], AllOf(StartsWith("TimeoutError"), HasSubstr("rank 2")));
  // It may find the meeting place gone, with rank 0.
  EXPECT_THAT(reports[1], AnyOf(AllOf(StartsWith("TimeoutError"), HasSubstr("rank 2")),
                                AllOf(StartsWith("TransportError"), HasSubstr("rank 0"))));
}

TEST(GlooProcesses, RankZeroThatDoesNotComeIsNamed) {
  const int port = free_port();
  const auto reports = run_in_processes(1, [&](int) { meet(1, 2, port, std::chrono::milliseconds(300)); });
  EXPECT_THAT(reports[0], AllOf(StartsWith("TimeoutError"), HasSubstr("rank 0")));
}

TEST(GlooProcesses, BadPlacesAreRefused) {
  EXPECT_THROW(make_gloo({.rank = 0, .size = 2, .master_address = ""}), ConfigError);
  EXPECT_THROW(make_gloo({.rank = 0, .size = 2, .master_port = 0}), ConfigError);
  EXPECT_THROW(make_gloo({.rank = 0, .size = 2, .master_port = 70'000}), ConfigError);
  EXPECT_THROW(make_gloo({.rank = 2, .size = 2}), ConfigError);
  EXPECT_THROW(make_gloo({.rank = 0, .size = 2, .master_address = "no.such.host.invalid"}), TransportError);
}

}  // namespace
}  // namespace dear::train::processes_test
