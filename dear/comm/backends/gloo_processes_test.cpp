#include <algorithm>
#include <atomic>
#include <csignal>
#include <random>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/reserved_port.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/gloo_in_test.h"
#include "dear/comm/group/testing/chunk_rows.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/shm/testing/ranks.h"

// Gloo between processes, as launchers start them; and what happens when they end.
namespace dear::processes_test {
namespace {

using backends::testing::at_port;
using backends::testing::gloo_group;
using backends::testing::run_in_processes;
using comm::testing::check_group;
using os::testing::ReservedPort;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

View whole(const Buffer& buffer) { return {.buffer = buffer, .count = buffer.bytes() / 4}; }

TEST(GlooProcesses, DoEveryCollective) {
  const ReservedPort port;
  EXPECT_THAT(run_in_processes(3,
                               [&](int rank) {
                                 Group group = gloo_group(port.number(), rank, 3);
                                 check_group(group, {.dtypes = {DType::f32, DType::bf16},
                                                     .counts = {17, 300'001},
                                                     .order = comm::testing::Order::fixed});
                                 comm::testing::check_waiting(group);
                               }),
              Each("ok"));
}

TEST(GlooProcesses, AllEndWellWhoeverLeavesFirst) {
  for (int first = 0; first < 3; ++first) {
    const ReservedPort port;
    EXPECT_THAT(run_in_processes(3,
                                 [&](int rank) {
                                   Group group = gloo_group(port.number(), rank, 3);
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
    const ReservedPort port;
    auto reports = run_in_processes(3, [&](int rank) {
      Group group = gloo_group(port.number(), rank, 3);
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

TEST(GlooProcesses, NothingListensWhileTheyWork) {
  const ReservedPort port;
  EXPECT_THAT(run_in_processes(3,
                               [&](int rank) {
                                 Group group = gloo_group(port.number(), rank, 3);
                                 group.barrier().wait();
                                 for (int fd = 0; fd < 1024; ++fd) {
                                   int listens = 0;
                                   socklen_t length = sizeof listens;
                                   ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length);
                                   EXPECT_EQ(listens, 0) << "file " << fd;
                                 }
                                 group.barrier().wait();
                               }),
              Each("ok"));
}

// Of ranks that all have to do with one another, those who stay are told of the one that left, and of nobody
// whose connection broke in consequence.
TEST(GlooProcesses, ARankThatLeavesEarlyIsNamedByAll) {
  for (int trial = 0; trial < 8; ++trial) {
    const int size = 3 + trial % 2;
    const int leaver = trial % size;
    const ReservedPort port;
    auto reports = run_in_processes(size, [&](int rank) {
      Group group = gloo_group(port.number(), rank, size);
      const Buffer buffer = group.allocate(1 << 20);
      for (int step = 0; step < 3 || rank != leaver; ++step) {
        group.all_reduce(whole(buffer), Reduction::sum).wait();
        group.all_gather(whole(buffer)).wait();
      }
    });
    EXPECT_EQ(reports[static_cast<std::size_t>(leaver)], "ok");
    reports.erase(reports.begin() + leaver);
    EXPECT_THAT(reports, Each(AllOf(StartsWith("TransportError"),
                                    HasSubstr("rank " + std::to_string(leaver) + " left before"))));
  }
}

// As a worker that loads data does, it has all that the rank had open.
TEST(GlooProcesses, AKilledRankIsNamedThoughAChildOfItLives) {
  auto* const child = static_cast<std::atomic<pid_t>*>(
      ::mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const ReservedPort port;
  auto reports = run_in_processes(3, [&](int rank) {
    Group group = gloo_group(port.number(), rank, 3);
    const Buffer buffer = group.allocate(1 << 20);
    group.all_reduce(whole(buffer), Reduction::sum).wait();
    if (rank == 1) {
      const pid_t forked = ::fork();
      if (forked == 0) {
        for (int fd = 3; fd < 1024; ++fd) {  // but what the test hears of the rank by
          struct stat status{};
          if (::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode)) ::close(fd);
        }
        for (;;) ::pause();
      }
      *child = forked;
      raise(SIGKILL);
    }
    for (;;) group.all_reduce(whole(buffer), Reduction::sum).wait();
  });
  EXPECT_EQ(::kill(*child, SIGKILL), 0);  // it lived until now
  ::munmap(child, sizeof(pid_t));
  EXPECT_EQ(reports[1], "killed by signal 9");
  reports.erase(reports.begin() + 1);
  EXPECT_THAT(reports, Each(AllOf(StartsWith("TransportError"), HasSubstr("connection to rank 1"))));
}

TEST(GlooProcesses, ADeathAtAnyMomentIsNamedByAll) {
  std::mt19937 generator(7);
  for (int trial = 0; trial < 6; ++trial) {
    const int victim = static_cast<int>(generator() % 3);
    const auto collectives = generator() % 20;
    const ReservedPort port;
    auto reports = run_in_processes(3, [&](int rank) {
      Group group = gloo_group(port.number(), rank, 3);
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

TEST(GlooProcesses, ADeathInAnExchangeOfRowsIsNamedByAll) {
  for (const int victim : {0, 1, 2}) {
    const ReservedPort port;
    auto reports = run_in_processes(3, [&](int rank) {
      const Group group = gloo_group(port.number(), rank, 3);
      comm::testing::exchange_rows(group, [&](int round) {
        if (rank == victim && round == victim) raise(SIGKILL);
      });
    });
    reports.erase(reports.begin() + victim);
    EXPECT_THAT(reports,
                Each(AllOf(StartsWith("TransportError"), HasSubstr("rank " + std::to_string(victim)))));
  }
}

TEST(GlooProcesses, ALieAboutRowsIsRefusedByAll) {
  const ReservedPort port;
  EXPECT_THAT(run_in_processes(3,
                               [&](int rank) {
                                 const Group group = gloo_group(port.number(), rank, 3);
                                 comm::testing::lie_about_rows(group, 2, 1, 77);
                               }),
              Each(AllOf(StartsWith("TransportError"), HasSubstr("rank 2 says that it sends 77 rows"))));
}

TEST(GlooProcesses, AStoppedRankIsATimeoutThatNamesIt) {
  const ReservedPort port;
  const auto reports =
      run_in_processes(3,
                       [&](int rank) {
                         auto backend = backends::make_gloo(at_port(port.number(), rank, 3));
                         Group group(std::move(backend), {.timeout = std::chrono::seconds(2)});
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

}  // namespace
}  // namespace dear::processes_test
