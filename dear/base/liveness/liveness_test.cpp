#include "dear/base/liveness/liveness.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/error.h"

namespace dear::liveness::liveness_test {
namespace {

using os::testing::run_in_processes;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr std::chrono::duration<double> kPatience = std::chrono::seconds(60);

constexpr int kChild = 7;  // the place of a process that a rank has forked

// Memory of all processes of a test, over which ranks exchange texts, and wait for each other.
class Board {
 public:
  explicit Board(int ranks) {
    void* const memory =
        ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = new (memory) Memory;
    pthread_barrierattr_t shared;
    ::pthread_barrierattr_init(&shared);
    ::pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    ::pthread_barrier_init(&memory_->barrier, &shared, static_cast<unsigned int>(ranks));
  }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board() { ::munmap(memory_, sizeof(Memory)); }

  void meet() { ::pthread_barrier_wait(&memory_->barrier); }
  std::vector<std::string> exchange(int rank, int size, const std::string& mine) {
    memory_->lengths[rank] = mine.size();
    std::memcpy(memory_->texts[rank], mine.data(), mine.size());
    meet();
    std::vector<std::string> all;
    for (int one = 0; one < size; ++one) all.emplace_back(memory_->texts[one], memory_->lengths[one]);
    meet();
    return all;
  }
  pid_t& pid(int rank) { return memory_->pids[rank]; }

 private:
  struct Memory {
    pthread_barrier_t barrier;
    std::size_t lengths[8];
    char texts[8][1000];
    pid_t pids[8];
  };
  Memory* memory_;
};

// A rank of a test: its life, and those of the others.
struct Rank {
  Board& board;
  int rank;
  std::shared_ptr<Liveness> liveness;

  [[noreturn]] void die() const {
    ::kill(::getpid(), SIGKILL);
    ::_exit(9);
  }
  void tell(Cause cause, const std::string& text) const { liveness->tell(read_sentence(text, rank, cause)); }
};

// Runs ranks on these hosts, by letter; the reports are what each throws by the verdict. `act` is what a rank
// does before it waits for that.
std::vector<std::string> reports_of(const std::string& hosts, const std::function<void(Rank&)>& act,
                                    const std::vector<int>& stopped = {},
                                    const std::function<void(int rank, int exchanges)>& exchanged = {}) {
  const auto size = static_cast<int>(hosts.size());
  Board board(size);
  return run_in_processes(
      size,
      [&](int rank) {
        board.pid(rank) = ::getpid();
        Rank self{.board = board, .rank = rank, .liveness = nullptr};
        self.liveness = Liveness::make({.rank = rank,
                                        .size = size,
                                        .key = "the key of the job",
                                        .address = "127.0.0.1",
                                        .host = std::string(1, hosts[static_cast<std::size_t>(rank)]),
                                        .deadline = Deadline::after(kPatience)},
                                       [&, exchanges = 0](const std::string& mine) mutable {
                                         auto all = board.exchange(rank, size, mine);
                                         if (exchanged) exchanged(rank, ++exchanges);
                                         return all;
                                       });
        if (!self.liveness) throw ConfigError("nothing is watched");
        act(self);
        if (!self.liveness) return;
        const auto verdict = self.liveness->wait(Deadline::after(kPatience));
        if (verdict) std::rethrow_exception(error_of(*verdict));
      },
      stopped);
}

// All but the culprits say the same, which the matcher describes.
template <typename Matcher>
void expect_of_others(const std::vector<std::string>& reports, const std::vector<int>& culprits,
                      Matcher matcher) {
  std::string first;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (std::find(culprits.begin(), culprits.end(), rank) != culprits.end()) continue;
    if (first.empty()) first = reports[rank];
    EXPECT_THAT(reports[rank], matcher) << "rank " << rank;
    EXPECT_EQ(reports[rank], first) << "rank " << rank;
  }
}

// The ranks below one that dies decide for themselves, and say the same: ranks 0 and 3 lead.
TEST(Liveness, AKilledRankIsNamedToAllThoughAChildOfItLives) {
  for (const auto& [hosts, killed] : std::vector<std::pair<std::string, int>>{
           {"aaaa", 2}, {"aaaa", 0}, {"aaabb", 4}, {"aaabb", 3}, {"aaabb", 0}}) {
    const auto reports = reports_of(hosts, [killed = killed](Rank& self) {
      if (self.rank == killed) {
        const pid_t child = ::fork();
        while (child == 0 && ::pause() != 0) {
        }
        self.board.pid(kChild) = child;
        self.die();
      }
      static_cast<void>(self.liveness->wait(Deadline::after(kPatience)));
      if (self.rank == (killed == 0 ? 1 : 0)) ::kill(self.board.pid(kChild), SIGKILL);
    });
    const std::string where = hosts == "aaaa" ? "" : " on .*";
    expect_of_others(
        reports, {killed},
        MatchesRegex(fmt::format("TransportError: rank {} \\(pid [0-9]+{}\\) died: its own output says why",
                                 killed, where)));
  }
}

TEST(Liveness, AFailureIsToldToAllInTheWordsOfItsRank) {
  for (const std::string hosts : {"aaa", "aabb", "abc"}) {
    const auto culprit = static_cast<int>(hosts.size()) - 1;
    const auto reports = reports_of(hosts, [&](Rank& self) {
      if (self.rank == culprit)
        self.tell(Cause::failed, fmt::format("rank {} failed: ValueError: poison", culprit));
    });
    expect_of_others(reports, {}, fmt::format("TransportError: rank {} failed: ValueError: poison", culprit));
  }
}

// Rank 2 fails when it has all that it needs of the others' start, and rank 0 hears of it within its own.
TEST(Liveness, ARankThatFailsAsItBeginsIsNotTakenForOneThatDied) {
  for (const std::string hosts : {"aaa", "abb", "abc"}) {
    const std::string why = "rank 2 failed: ValueError: poison";
    const auto reports = reports_of(
        hosts, [&](Rank& self) { self.tell(Cause::failed, why); }, {},
        [&](int rank, int exchanges) {
          if (rank == 0 && exchanges == 3) throw TransportError(why);
        });
    EXPECT_THAT(reports, Each("TransportError: " + why));
  }
}

TEST(Liveness, OfTwoFailuresAllAreToldTheSame) {
  const auto reports = reports_of("aabb", [](Rank& self) {
    self.board.meet();
    if (self.rank == 1) self.tell(Cause::failed, "rank 1 failed: ValueError: poison");
    if (self.rank == 3) self.die();
  });
  expect_of_others(reports, {3}, StartsWith("TransportError: rank "));
}

TEST(Liveness, ARankThatLeftIsNamedOnceOthersWaitForIt) {
  for (const std::string hosts : {"aaaa", "abcd"}) {
    const auto reports = reports_of(hosts, [](Rank& self) {
      if (self.rank == 1) self.liveness.reset();
      self.board.meet();
      if (self.rank == 2)
        self.tell(Cause::lost, "rank 2 lost its connection to rank 0 (Application timeout)");
    });
    EXPECT_EQ(reports[1], "ok");
    expect_of_others(reports, {1},
                     AllOf(StartsWith("TransportError: rank 1 (pid "), HasSubstr("left the group")));
  }
}

// Where rank 0 left, the ranks below it decide for themselves.
TEST(Liveness, ARankZeroThatLeftIsNamedByAllThatWaitForIt) {
  const auto reports = reports_of("aaa", [](Rank& self) {
    if (self.rank == 0) self.liveness.reset();
    self.board.meet();
    if (self.rank != 0) self.tell(Cause::lost, fmt::format("rank {} lost its connection", self.rank));
  });
  expect_of_others(reports, {0},
                   AllOf(StartsWith("TransportError: rank 0 (pid "), HasSubstr("left the group")));
}

TEST(Liveness, AStoppedRankIsLateAndNotDead) {
  const auto reports =
      reports_of("aab",
                 [](Rank& self) {
                   if (self.rank == 1) ::kill(::getpid(), SIGSTOP);
                   if (self.rank != 2) return;
                   for (std::string state; state.find(") T ") == std::string::npos; ::sched_yield()) {
                     std::ifstream file(fmt::format("/proc/{}/stat", self.board.pid(1)));
                     state.assign(std::istreambuf_iterator<char>(file), {});
                   }
                   self.tell(Cause::timeout, "rank 1 did not come within 3 s");
                 },
                 {1});
  expect_of_others(
      reports, {1},
      AllOf(StartsWith("TimeoutError: rank 1 did not come within 3 s; rank 1 is stopped by a signal"),
            HasSubstr("kill -CONT")));
}

TEST(Liveness, SaysWhereALateRankIs) {
  const auto reports = reports_of("abbb", [](Rank& self) {
    if (self.rank == 1) recorder::come_to_collective(7, 3);
    self.board.meet();
    if (self.rank == 3) self.tell(Cause::timeout, "rank 1 did not come within 3 s");
  });
  expect_of_others(reports, {}, EndsWith("rank 1 is in collective 7, all-reduce"));
}

TEST(Liveness, AForkedChildSaysNothing) {
  const auto reports = reports_of("aab", [](Rank& self) {
    if (self.rank != 1) return;
    const pid_t child = ::fork();
    if (child == 0) {
      self.tell(Cause::failed, "rank 1 failed: in a child");
      static_cast<void>(self.liveness->wait(Deadline::after(kPatience)));
      self.liveness.reset();
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    self.tell(Cause::failed, "rank 1 failed: ValueError");
  });
  expect_of_others(reports, {}, "TransportError: rank 1 failed: ValueError");
}

TEST(Liveness, AJobThatEndsWellHasNoVerdict) {
  const auto reports = reports_of("aabb", [](Rank& self) {
    self.board.meet();
    self.liveness.reset();
  });
  for (const std::string& report : reports) EXPECT_EQ(report, "ok");
}

// A place where nobody can listen.
TEST(Liveness, IsLeftOutOnAllRanksWhereOneCannotConnect) {
  Board board(3);
  const auto reports = run_in_processes(3, [&](int rank) {
    const auto made = Liveness::make({.rank = rank,
                                      .size = 3,
                                      .key = "key",
                                      .address = rank == 0 ? "192.0.2.1" : "127.0.0.1",
                                      .host = std::to_string(rank),
                                      .deadline = Deadline::after(kPatience)},
                                     [&](const std::string& mine) { return board.exchange(rank, 3, mine); });
    if (made) throw ConfigError("it is there");
  });
  for (const std::string& report : reports) EXPECT_EQ(report, "ok");
}

TEST(Liveness, ListenersHearOfAVerdictOnceAlsoOfAnOldOne) {
  const auto reports = reports_of("aa", [](Rank& self) {
    int first = 0, second = 0;
    self.liveness->listen([&](const Verdict&) { ++first; });
    self.board.meet();
    if (self.rank == 1) self.tell(Cause::failed, "rank 1 failed: ValueError");
    EXPECT_TRUE(self.liveness->wait(Deadline::after(kPatience)));
    self.liveness->listen([&](const Verdict& verdict) { second += verdict.first.culprit; });
    self.board.meet();
    self.liveness.reset();  // its thread has ended
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, 1);
  });
  for (const std::string& report : reports) EXPECT_EQ(report, "ok");
}

}  // namespace
}  // namespace dear::liveness::liveness_test
