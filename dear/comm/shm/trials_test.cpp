#include <random>
#include <signal.h>
#include <string>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/comm/shm/testing/ranks.h"

// 64 trials at random: a rank is killed, stopped, or comes late, at any moment of its work. Every survivor
// ends within its deadline with a sentence about it, and nothing is left.
namespace dear::backends::trials_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::meet_as;
using ::testing::StartsWith;

constexpr int kShards = 8;
constexpr int kTrialsInShard = 8;

enum class Fate : std::uint8_t { killed, stopped, late, absent };

struct Trial {
  int ranks = 2;
  int victim = 0;
  Fate fate = Fate::killed;
  itimerval strike{};  // when the victim's time has come
};

Trial draw(std::mt19937& generator) {
  const auto number = [&](int least, int most) {
    return std::uniform_int_distribution(least, most)(generator);
  };
  Trial trial;
  trial.ranks = number(2, 5);
  trial.victim = number(0, trial.ranks - 1);
  trial.fate = std::vector{Fate::killed, Fate::killed, Fate::stopped, Fate::late,
                           Fate::absent}[static_cast<std::size_t>(number(0, 4))];
  trial.strike.it_value.tv_usec = number(1, 20'000);
  return trial;
}

// Small ones, large ones and buffers, in an order that is the same on all ranks.
void work(Group& group, int rounds) {
  std::mt19937 generator(7);
  for (int round = 0; rounds < 0 || round < rounds; ++round) {
    const Buffer buffer = group.allocate(400'000);
    for (const std::int64_t count : {std::int64_t{100}, std::int64_t{100'000}}) {
      const View view{.buffer = buffer, .count = count};
      const Pending reduced = group.reduce_scatter(view, Reduction::average);
      const Pending gathered = group.all_gather(view);
      reduced.wait();
      gathered.wait();
      group.perform({.collective = Collective::all_reduce, .view = view});
      group.perform(
          {.collective = Collective::broadcast, .view = view, .root = static_cast<int>(generator() % 2)});
    }
  }
}

void set_alarm(const itimerval& when, void (*handler)(int)) {
  signal(SIGALRM, handler);
  setitimer(ITIMER_REAL, &when, nullptr);
}

// Sleeps until the alarm, wherever it was on its way.
void wait_for_alarm(const itimerval& when) {
  sigset_t alarm;
  sigset_t before;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  sigprocmask(SIG_BLOCK, &alarm, &before);
  set_alarm(when, [](int) {});
  int signal_number = 0;
  sigwait(&alarm, &signal_number);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

class Trials : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<std::string> run(const Trial& trial, const std::string& rendezvous) {
    // Longer than a busy machine keeps a rank that is well from running.
    constexpr testing::Patience kPatience{.meeting = std::chrono::seconds(60),
                                          .collective = std::chrono::seconds(2)};
    constexpr testing::Patience kHasty{.meeting = std::chrono::milliseconds(1500),
                                       .collective = std::chrono::seconds(60)};
    constexpr testing::Patience kLong;
    const auto body = [&](int rank) {
      const bool is_victim = rank == trial.victim;
      if (trial.fate == Fate::absent) {
        if (is_victim) return;
        Group group = meet_as(rank, trial.ranks, rendezvous, kHasty);
        return;
      }
      if (trial.fate == Fate::late) {
        if (is_victim) wait_for_alarm(trial.strike);
        Group group = meet_as(rank, trial.ranks, rendezvous, kLong);
        work(group, 2);
        return;
      }
      Group group = meet_as(rank, trial.ranks, rendezvous, kPatience);
      if (is_victim) {
        set_alarm(trial.strike, [](int) { raise(SIGKILL); });
        if (trial.fate == Fate::stopped) set_alarm(trial.strike, [](int) { raise(SIGSTOP); });
      }
      work(group, -1);
    };
    return testing::run_in_processes(
        trial.ranks, body, trial.fate == Fate::stopped ? std::vector{trial.victim} : std::vector<int>{});
  }

  static ::testing::Matcher<const std::string&> expectation(const Trial& trial) {
    const std::string rank = fmt::format("rank {}", trial.victim);
    switch (trial.fate) {
      case Fate::killed:
        return AllOf(StartsWith("TransportError: " + rank), HasSubstr("died while others"));
      case Fate::stopped:
        return AllOf(StartsWith("TimeoutError: "), HasSubstr("did not come within"));
      case Fate::late:
        return ::testing::Eq(std::string("ok"));
      case Fate::absent:
        return AllOf(StartsWith("TimeoutError: "), HasSubstr(rank + " did not come within"));
    }
    return ::testing::_;
  }
};

TEST_P(Trials, EndForEverySurvivorWithinItsDeadline) {
  std::mt19937 generator(static_cast<unsigned>(4711 + GetParam()));
  for (int number = 0; number < kTrialsInShard; ++number) {
    const Trial trial = draw(generator);
    const std::string rendezvous = testing::fresh_rendezvous();
    const testing::Holdings before = testing::holdings();
    const std::vector<std::string> reports = run(trial, rendezvous);
    for (int rank = 0; rank < trial.ranks; ++rank) {
      if (rank != trial.victim || trial.fate == Fate::late) {
        EXPECT_THAT(reports[static_cast<std::size_t>(rank)], expectation(trial))
            << "trial " << number << ", rank " << rank << " of " << trial.ranks;
      }
    }
    EXPECT_EQ(testing::holdings(), before);
    EXPECT_FALSE(testing::has_children());
    EXPECT_FALSE(testing::is_listening(rendezvous));
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, Trials, ::testing::Range(0, kShards));

}  // namespace
}  // namespace dear::backends::trials_test
