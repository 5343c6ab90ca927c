#include <ctime>
#include <functional>
#include <optional>
#include <random>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/comm/group/testing/chunk_rows.h"
#include "dear/comm/shm/testing/ranks.h"

// Ranks as processes that are killed, stopped or leave: the others say so, and nothing is left.
namespace dear::backends::failures_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::meet_as;
using testing::run_in_processes;
using ::testing::StartsWith;

constexpr int kRanks = 3;
// Where a failure must be noticed, not waited for: longer than the test may take.
constexpr testing::Patience kLong{.meeting = std::chrono::seconds(100),
                                  .collective = std::chrono::seconds(100)};
constexpr testing::Patience kShort{.collective = std::chrono::seconds(1)};

// What the ranks do over and over; every kind of wait is in it. `hook` is called between the parts.
void work(Group& group, int rounds, const std::function<void(int)>& hook) {
  for (int round = 0; rounds < 0 || round < rounds; ++round) {
    hook(0);
    Buffer buffer = group.allocate(100'000);
    const View view{.buffer = buffer, .count = 25'000};
    hook(1);
    group.all_reduce(view, Reduction::sum).wait();
    hook(2);
    const Pending scattered = group.reduce_scatter(view, Reduction::average);
    const Pending gathered = group.all_gather(view);
    hook(3);
    scattered.wait();
    gathered.wait();
    hook(4);
    group.barrier().wait();
  }
}

class Failures : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(testing::holdings(), before_);
    EXPECT_FALSE(testing::has_children());
    EXPECT_FALSE(testing::is_listening(rendezvous_));
  }
  const std::string& rendezvous() const { return rendezvous_; }

  // All work without end, until `victim` strikes at `point` of its third round.
  std::vector<std::string> run_with_strike(int victim, int point, const testing::Patience& patience,
                                           const std::vector<int>& stopped,
                                           const std::function<void(Group&)>& strike) const {
    return run_in_processes(
        kRanks,
        [&](int rank) {
          Group group = meet_as(rank, kRanks, rendezvous_, patience);
          work(group, -1, [&, round = 0](int at) mutable {
            round += at == 0 ? 1 : 0;
            if (rank == victim && round == 3 && at == point) {
              strike(group);
            }
          });
        },
        stopped);
  }

  static void expect_all_but(int victim, const std::vector<std::string>& reports,
                             const ::testing::Matcher<const std::string&>& matcher) {
    const std::string& first = reports[victim == 0 ? 1 : 0];
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != victim) {
        EXPECT_THAT(reports[static_cast<std::size_t>(rank)], matcher) << "rank " << rank;
        EXPECT_EQ(reports[static_cast<std::size_t>(rank)], first) << "rank " << rank;
      }
    }
  }

 private:
  const std::string rendezvous_ = testing::fresh_rendezvous();
  const testing::Holdings before_ = testing::holdings();
};

// The victim dies while it exchanges rows, in its first such exchange and in later ones.
TEST_F(Failures, ADeathInAnExchangeOfRowsIsNoticedAndNamed) {
  for (int victim = 0; victim < kRanks; ++victim) {
    for (const int last : {0, 1, 5}) {
      const auto reports = run_in_processes(kRanks, [&](int rank) {
        const Group group = meet_as(rank, kRanks, rendezvous(), kLong);
        comm::testing::exchange_rows(group, [&](int round) {
          if (rank == victim && round == last) raise(SIGKILL);
        });
      });
      EXPECT_EQ(reports[static_cast<std::size_t>(victim)], "killed by signal 9");
      expect_all_but(victim, reports,
                     AllOf(StartsWith(fmt::format("TransportError: rank {} (pid ", victim)),
                           HasSubstr("died while others wait"), HasSubstr("all-to-all-v")));
    }
  }
}

class AtAPoint : public Failures, public ::testing::WithParamInterface<std::tuple<int, int>> {
 protected:
  const int victim_ = std::get<0>(GetParam());
  const int point_ = std::get<1>(GetParam());

  std::vector<std::string> run(const std::function<void(Group&)>& strike) {
    return run_with_strike(victim_, point_, kLong, {}, strike);
  }
  const std::string& end_of_victim(const std::vector<std::string>& reports) const {
    return reports[static_cast<std::size_t>(victim_)];
  }
};

TEST_P(AtAPoint, ADeathIsNoticedAndNamed) {
  const auto reports = run([](Group&) { raise(SIGKILL); });
  EXPECT_EQ(end_of_victim(reports), "killed by signal 9");
  expect_all_but(victim_, reports,
                 AllOf(StartsWith(fmt::format("TransportError: rank {} (pid ", victim_)),
                       HasSubstr("died while others wait")));
}

TEST_P(AtAPoint, AnExitIsADeath) {
  const auto reports = run([](Group&) { _exit(7); });
  EXPECT_EQ(end_of_victim(reports), "exited with 7");
  expect_all_but(victim_, reports,
                 AllOf(StartsWith(fmt::format("TransportError: rank {} (pid ", victim_)), HasSubstr("died")));
}

TEST_P(AtAPoint, AFailureReachesThePeersInItsOwnWords) {
  const auto reports = run([](Group& group) {
    group.abort("the disk is full");
    group.barrier().wait();
  });
  EXPECT_THAT(reports, Each(ContainsRegex(fmt::format("^TransportError: rank {} .*disk", victim_))));
}

INSTANTIATE_TEST_SUITE_P(Victims, AtAPoint,
                         ::testing::Combine(::testing::Range(0, kRanks), ::testing::Range(0, 5)),
                         [](const auto& test) {
                           return fmt::format("Rank{}Point{}", std::get<0>(test.param),
                                              std::get<1>(test.param));
                         });

TEST_F(Failures, AStopIsNamedAtTheDeadline) {
  for (int victim = 0; victim < kRanks; ++victim) {
    const int point = victim + 1;
    const auto reports = run_with_strike(victim, point, kShort, {victim}, [](Group&) { raise(SIGSTOP); });
    EXPECT_EQ(reports[static_cast<std::size_t>(victim)], "killed by signal 9");
    expect_all_but(victim, reports,
                   AllOf(StartsWith(fmt::format("TimeoutError: rank {} (pid ", victim)),
                         HasSubstr("did not come within"), HasSubstr("kill -CONT ")));
  }
}

TEST_F(Failures, ARankThatLeavesEarlyIsNamed) {
  for (int victim = 0; victim < kRanks; ++victim) {
    const auto reports = run_in_processes(kRanks, [&](int rank) {
      Group group = meet_as(rank, kRanks, rendezvous(), kLong);
      work(group, rank == victim ? 2 : 3, [](int) {});
    });
    EXPECT_EQ(reports[static_cast<std::size_t>(victim)], "ok");
    expect_all_but(victim, reports,
                   AllOf(StartsWith(fmt::format("TransportError: rank {} (pid ", victim)),
                         ContainsRegex("left .*collective 11, allocation of 100000")));
  }
}

TEST_F(Failures, NoneAfterSuccessWhoeverLeavesFirst) {
  for (int round = 0; round < 20; ++round) {
    const auto reports = run_in_processes(kRanks, [&](int rank) {
      Group group = meet_as(rank, kRanks, rendezvous(), kLong);
      work(group, 1, [](int) {});
      if (rank == round % kRanks) {
        _exit(0);  // does not even say goodbye
      }
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(reports[static_cast<std::size_t>(rank)], rank == round % kRanks ? "exited with 0" : "ok");
    }
  }
}

// At any moment: a timer kills the victim while all work without end.
TEST_F(Failures, DeathAtRandomMomentsIsNoticedAndNamed) {
  std::mt19937 generator(20230711);
  std::uniform_int_distribution<int> any_victim(0, kRanks - 1);
  std::uniform_int_distribution<int> microseconds(1, 5000);
  for (int round = 0; round < 30; ++round) {
    const int victim = any_victim(generator);
    const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = microseconds(generator)}};
    const auto reports = run_in_processes(kRanks, [&](int rank) {
      Group group = meet_as(rank, kRanks, rendezvous(), kLong);
      if (rank == victim) {
        signal(SIGALRM, SIG_DFL);
        setitimer(ITIMER_REAL, &timer, nullptr);
      }
      work(group, -1, [](int) {});
    });
    EXPECT_EQ(reports[static_cast<std::size_t>(victim)], fmt::format("killed by signal {}", SIGALRM));
    expect_all_but(
        victim, reports,
        AllOf(StartsWith(fmt::format("TransportError: rank {} (pid ", victim)), HasSubstr("died")));
  }
}

TEST_F(Failures, WaitingCostsNextToNoProcessorTime) {
  const auto reports =
      run_in_processes(2,
                       [&](int rank) {
                         Group group = meet_as(rank, 2, rendezvous(), kShort);
                         group.barrier().wait();
                         if (rank == 1) {
                           raise(SIGSTOP);
                         }
                         const std::clock_t before = std::clock();
                         // The wait begins a moment after its deadline was set.
                         EXPECT_THAT(testing::report_of([&] { group.barrier().wait(); }),
                                     ::testing::ContainsRegex("did not come within (1|9[0-9]+ ms)"));
                         const double used = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
                         EXPECT_LT(used, 0.05 * kShort.collective.count());
                       },
                       {1});
  EXPECT_EQ(reports[0], "ok");
}

TEST_F(Failures, AnImpossibleAllocationFailsEverywhereAlike) {
  const auto reports = run_in_processes(kRanks, [&](int rank) {
    Group group = meet_as(rank, kRanks, rendezvous(), kLong);
    static_cast<void>(group.allocate(std::int64_t{1} << 50));
  });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("TransportError: cannot allocate 3145728"),
                                  HasSubstr("use fewer ranks, a smaller model"))));
  EXPECT_THAT(reports, Each(reports[0]));
}

TEST_F(Failures, ALimitOnFileSizeIsAnErrorAndNoSignal) {
  const auto reports = run_in_processes(kRanks, [&](int rank) {
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    Group group = meet_as(rank, kRanks, rendezvous(), kLong);
    static_cast<void>(group.allocate(1 << 20));
  });
  EXPECT_THAT(reports, Each(HasSubstr("ulimit -f unlimited")));
}

TEST_F(Failures, BuffersNeedNoOpenFiles) {
  const auto reports = run_in_processes(kRanks, [&](int rank) {
    Group group = meet_as(rank, kRanks, rendezvous(), kLong);
    const testing::Holdings before = testing::holdings();
    std::vector<Buffer> buffers;
    for (int i = 0; i < 20; ++i) {
      buffers.push_back(group.allocate(1000));
    }
    EXPECT_EQ(testing::holdings().open_files, before.open_files);
    EXPECT_EQ(testing::holdings().segments, before.segments + 20);
    buffers.clear();
    EXPECT_EQ(testing::holdings(), before);
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST_F(Failures, InAPartNameTheRankOfTheWhole) {
  const auto reports = run_in_processes(kRanks, [&](int rank) {
    const Group group = meet_as(rank, kRanks, rendezvous(), kLong);
    const std::optional<Group> part = group.split(rank == 0 ? -1 : 0, 0);
    if (rank == 2) {
      raise(SIGKILL);
    }
    if (part) {
      part->barrier().wait();
    }
  });
  EXPECT_EQ(reports[0], "ok");
  EXPECT_THAT(reports[1], AllOf(StartsWith("TransportError: rank 2 (pid "), HasSubstr("died while others")));
}

TEST_F(Failures, APartThatGoesLeavesNothing) {
  const auto reports = run_in_processes(kRanks, [&](int rank) {
    const Group group = meet_as(rank, kRanks, rendezvous(), kLong);
    const testing::Holdings before = testing::holdings();
    {
      const Group part = group.duplicate();
      part.barrier().wait();
    }
    EXPECT_EQ(testing::holdings(), before);
    group.barrier().wait();
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST_F(Failures, AForkedChildIsNotTheRank) {
  if (dear::testing::kThreadSanitizer)
    GTEST_SKIP() << "clang's ThreadSanitizer knows no thread in a forked child";
  const auto reports = run_in_processes(kRanks, [&](int rank) {
    std::optional<Group> group(meet_as(rank, kRanks, rendezvous(), kLong));
    group->barrier().wait();
    const pid_t child = fork();
    if (child == 0) {
      group.reset();
      _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    group->barrier().wait();
  });
  EXPECT_THAT(reports, Each("ok"));
}

}  // namespace
}  // namespace dear::backends::failures_test
