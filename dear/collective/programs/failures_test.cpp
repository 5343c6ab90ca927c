#include <ctime>
#include <functional>
#include <random>
#include <signal.h>
#include <string>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"
#include "dear/collective/testing/conformance.h"
#include "dear/collective/testing/ranks.h"

// Programs over channels between processes that are killed, stopped or leave: the others say so, and nothing
// is left.
namespace dear::collective::failures_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::meet_over_channels;
using testing::run_in_processes;
using ::testing::StartsWith;

constexpr int kRanks = 4;
constexpr testing::Patience kLong{.meeting = std::chrono::seconds(100),
                                  .collective = std::chrono::seconds(100)};
constexpr testing::Patience kShort{.collective = std::chrono::seconds(1)};

void work(Group& group, int rounds) {
  Buffer buffer = group.allocate(1'000'000);
  const View view{.buffer = buffer, .count = 250'000};
  for (int round = 0; rounds < 0 || round < rounds; ++round) {
    group.all_reduce(view, Reduction::sum).wait();
    const Pending scattered = group.reduce_scatter(view, Reduction::average);
    const Pending gathered = group.all_gather(view);
    scattered.wait();
    gathered.wait();
    group.broadcast({.buffer = buffer, .count = 100}, round % group.size()).wait();
    group.barrier().wait();
  }
}

class ProgramFailures : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(testing::holdings(), before_);
    EXPECT_FALSE(testing::has_children());
    EXPECT_FALSE(testing::is_listening(rendezvous()));
  }
  const std::string& rendezvous() const { return rendezvous_; }

 private:
  const std::string rendezvous_ = testing::fresh_rendezvous();
  const testing::Holdings before_ = testing::holdings();
};

TEST_F(ProgramFailures, NoneInProcessesThatKeepInStep) {
  for (const int size : {1, 2, 3, 8}) {
    const auto reports = run_in_processes(size, [&](int rank) {
      Group group = meet_over_channels(rank, size, rendezvous(), kLong, {.reproducible = true});
      testing::check_group(group, {.dtypes = {DType::f32, DType::f16}, .counts = {1000}});
    });
    EXPECT_THAT(reports, Each("ok"));
  }
}

TEST_F(ProgramFailures, DeathAtRandomMomentsIsNoticedAndNamed) {
  std::mt19937 generator(5);
  std::uniform_int_distribution<int> microseconds(1, 8000);
  for (int round = 0; round < 25; ++round) {
    const int victim = round % kRanks;
    const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = microseconds(generator)}};
    const auto reports = run_in_processes(kRanks, [&](int rank) {
      Group group = meet_over_channels(rank, kRanks, rendezvous(), kLong);
      group.barrier().wait();
      if (rank == victim) {
        signal(SIGALRM, SIG_DFL);
        setitimer(ITIMER_REAL, &timer, nullptr);
      }
      work(group, -1);
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_THAT(reports[static_cast<std::size_t>(rank)],
                  rank == victim ? ::testing::Matcher<std::string>("killed by signal 14")
                                 : AllOf(StartsWith(fmt::format("TransportError: rank {} (pid ", victim)),
                                         HasSubstr("died while others wait in collective")));
    }
  }
}

TEST_F(ProgramFailures, AStopIsNamedAtTheDeadlineAndWaitingCostsNextToNothing) {
  const auto reports =
      run_in_processes(kRanks,
                       [&](int rank) {
                         Group group = meet_over_channels(rank, kRanks, rendezvous(), kShort);
                         work(group, 1);
                         if (rank == 2) {
                           raise(SIGSTOP);
                         }
                         const std::clock_t before = std::clock();
                         const std::string report = testing::report_of([&] { work(group, 1); });
                         EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
                         throw TimeoutError(report);
                       },
                       {2});
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(reports[static_cast<std::size_t>(rank)], HasSubstr("did not come within"));
    EXPECT_EQ(reports[static_cast<std::size_t>(rank)], reports[0]);
  }
}

TEST_F(ProgramFailures, ARankThatLeavesEarlyIsNamed) {
  for (int victim = 0; victim < kRanks; ++victim) {
    const auto reports = run_in_processes(kRanks, [&](int rank) {
      Group group = meet_over_channels(rank, kRanks, rendezvous(), kLong);
      work(group, rank == victim ? 2 : 3);
    });
    EXPECT_EQ(reports[static_cast<std::size_t>(victim)], "ok");
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != victim) {
        EXPECT_THAT(reports[static_cast<std::size_t>(rank)],
                    AllOf(StartsWith(fmt::format("TransportError: rank {} (pid ", victim)),
                          HasSubstr("left the group while others wait in collective")));
      }
    }
  }
}

TEST_F(ProgramFailures, NoneAfterSuccessWhoeverLeavesFirst) {
  for (int round = 0; round < 12; ++round) {
    const auto reports = run_in_processes(kRanks, [&](int rank) {
      Group group = meet_over_channels(rank, kRanks, rendezvous(), kLong);
      work(group, 1);
      if (rank == round % kRanks) {
        _exit(0);  // does not even say goodbye
      }
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(reports[static_cast<std::size_t>(rank)], rank == round % kRanks ? "exited with 0" : "ok");
    }
  }
}

}  // namespace
}  // namespace dear::collective::failures_test
