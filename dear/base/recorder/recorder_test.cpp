#include "dear/base/recorder/recorder.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::recorder {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class Recorder : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::setenv("DEAR_RECORD", folder().c_str(), 1), 0); }
  void TearDown() override { ::unsetenv("DEAR_RECORD"); }

  static std::string folder() {
    static const std::string kFolder = [] {
      std::string name = ::testing::TempDir() + "recorder-XXXXXX";
      return std::string(::mkdtemp(name.data()));
    }();
    return kFolder;
  }
  static std::string path(int rank = 2) { return fmt::format("{}/rank-{}.record", folder(), rank); }
  // A process has one record.
  static int in_child(const std::function<void()>& act) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        act();
      } catch (...) {
        ::_exit(9);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
};

TEST_F(Recorder, KeepsWhatAKilledRankDid) {
  EXPECT_EQ(
      in_child([] {
        open(2, 5);
        note({.kind = Kind::begun, .number = 7, .first = 4096, .second = 3, .collective = 1, .group = 2});
        note_step(11, 0.25, 0.125);
        note({.kind = Kind::files, .text = "a/path/that/is/longer/than/the/room/step-12"});
        ::raise(SIGKILL);
      }),
      -SIGKILL);
  const Record record = read_record(path());
  EXPECT_EQ(record.rank, 2);
  EXPECT_EQ(record.ranks, 5);
  EXPECT_GT(record.pid, 0);
  EXPECT_FALSE(record.host.empty());
  EXPECT_FALSE(record.failure);
  ASSERT_EQ(record.events.size(), 3);
  EXPECT_EQ(record.events[0].kind, Kind::begun);
  EXPECT_EQ(record.events[0].number, 7);
  EXPECT_EQ(record.events[0].first, 4096);
  EXPECT_EQ(record.events[0].second, 3);
  EXPECT_EQ(record.events[0].group, 2);
  EXPECT_EQ(record.events[1].first, 125'000'000);
  EXPECT_EQ(record.steps, 1);
  EXPECT_EQ(record.step_nanoseconds, 250'000'000);
  EXPECT_EQ(text_of(record.events[2]), "/than/the/room/step-12");
  EXPECT_NEAR(static_cast<double>(record.realtime(record.events[0].nanoseconds)) / 1e9,
              static_cast<double>(::time(nullptr)), 60);
}

TEST_F(Recorder, KeepsTheFirstFailureAndTheLastEvents) {
  constexpr std::int64_t kNoted = 3 * kEvents + 17;
  EXPECT_EQ(in_child([] {
              open(2, 3);
              std::vector<std::thread> threads;
              for (int thread = 0; thread < 3; ++thread)
                threads.emplace_back([] {
                  for (int i = 0; i < kEvents; ++i) note({.kind = Kind::ended, .number = i});
                });
              for (std::thread& thread : threads) thread.join();
              for (int i = 0; i < 17; ++i) note({.kind = Kind::begun, .number = i});
              note_failure("ValueError: poison", true);
              note_failure("rank 2 failed", false);
            }),
            0);
  const Record record = read_record(path());
  EXPECT_EQ(record.events_ever, static_cast<std::uint64_t>(kNoted));
  // A thread that was held up writes over a place that the others have come to again: one event a thread.
  EXPECT_LE(record.events.size(), static_cast<std::size_t>(kEvents));
  EXPECT_GE(record.events.size(), static_cast<std::size_t>(kEvents - 3));
  EXPECT_EQ(record.events.back().number, 16);
  ASSERT_TRUE(record.failure);
  EXPECT_EQ(record.failure->text, "ValueError: poison");
  EXPECT_TRUE(record.failure->own);
}

TEST_F(Recorder, RecordsNothingInAForkedChildOrWithoutAPlace) {
  EXPECT_EQ(in_child([] {
              open(2, 3);
              note({.kind = Kind::step});
              if (in_child([] { note({.kind = Kind::step}); }) != 0) ::_exit(8);
            }),
            0);
  EXPECT_EQ(read_record(path()).events.size(), 1);
  EXPECT_EQ(in_child([] {
              ::setenv("DEAR_RECORD", "", 1);
              open(4, 5);
              note_failure("nobody", true);
              if (is_open()) ::_exit(8);
            }),
            0);
  EXPECT_FALSE(std::ifstream(path(4)).good());
}

TEST_F(Recorder, GoesOnWithOtherRanks) {
  EXPECT_EQ(in_child([] {
              open(2, 3);
              note_step(0, 0.1, 0);
              note_step(1, 0.1, 0);
              note_failure("rank 0 died", false);
              if (next_group() != 0 || next_group() != 1) ::_exit(8);
              begin_again(1, 2);
              if (next_group() != 0) ::_exit(9);
              note({.kind = Kind::begun, .number = 7});
              note_progress(40);
            }),
            0);
  const Record record = read_record(path());
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.ranks, 2);
  EXPECT_FALSE(record.failure);
  ASSERT_EQ(record.events.size(), 1);
  EXPECT_EQ(record.events[0].number, 7);
  EXPECT_EQ(record.first_step + record.steps, 40);
}

// Memory that the launcher holds has no name, and a path under /proc.
TEST_F(Recorder, WritesIntoMemoryOfAnotherProcess) {
  const int file = ::memfd_create("record", MFD_CLOEXEC);
  const std::string place = fmt::format("/proc/{}/fd/{}", ::getpid(), file);
  EXPECT_EQ(in_child([&] {
              ::setenv("DEAR_RECORD", place.c_str(), 1);
              open(0, 1);
              note_stacks(SIGUSR2);
            }),
            0);
  EXPECT_EQ(read_record(place).stacks_signal, SIGUSR2);
  ::close(file);
}

TEST_F(Recorder, RefusesPlacesAndFilesThatAreNone) {
  EXPECT_EQ(in_child([] {
              ::setenv("DEAR_RECORD", "/proc/no/such/folder", 1);
              EXPECT_THAT([] { open(0, 1); }, ThrowsMessage<ConfigError>(HasSubstr("DEAR_RECORD")));
              ::_exit(::testing::Test::HasFailure() ? 7 : 0);
            }),
            0);
  const std::string other = folder() + "/other";
  std::ofstream(other) << "not a record";
  EXPECT_THAT([&] { read_record(other); }, ThrowsMessage<ConfigError>(HasSubstr("no flight record")));
  std::ofstream(other) << std::string(sizeof(Layout), '\0');
  EXPECT_THAT([&] { read_record(other); }, ThrowsMessage<ConfigError>(HasSubstr("no flight record")));
  // Bytes of anybody's: damaged events are left out.
  EXPECT_EQ(in_child([] {
              open(2, 3);
              for (int i = 0; i < 10; ++i) note({.kind = Kind::begun, .number = i});
            }),
            0);
  std::string bytes = os::read_file(path());
  for (std::size_t i = sizeof(Layout) - sizeof(Layout::ring) + 70; i < bytes.size(); i += 61)
    bytes[i] ^= 0x55;
  std::ofstream(other) << bytes;
  EXPECT_LT(read_record(other).events.size(), 5);
  bytes[8] = '\x7f';  // its rank
  std::ofstream(other) << bytes;
  EXPECT_THAT([&] { read_record(other); }, ThrowsMessage<ConfigError>(HasSubstr("damaged")));
}

}  // namespace
}  // namespace dear::recorder
