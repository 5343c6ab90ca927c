#include "dear/train/checkpoint/patience.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/testing/groups.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::checkpoint::patience_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

void run_all(std::chrono::duration<double> timeout, const comm::testing::GroupBody& body) {
  EXPECT_THAT(
      comm::testing::run_on_threads(backends::testing::make_shm_threads(3), {.timeout = timeout}, body),
      Each("ok"));
}

TEST(Patience, LastsAsLongAsBytesMove) {
  constexpr std::chrono::milliseconds kTimeout(400);
  const std::string path = ::testing::TempDir() + "dear_patience_" + std::to_string(::getpid());
  run_all(kTimeout, [&](const Group& group) {
    patiently(group, [&] {
      if (group.rank() != 1) return;
      os::AtomicFile file(path);
      const std::array<std::byte, 4096> page{};
      for (const Deadline end = Deadline::after(3 * kTimeout); !end.expired();) file.write(page);
    });
    group.barrier().wait();
  });
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Patience, EndsWhereNothingMoves) {
  std::mutex mutex;
  std::condition_variable told;
  int refused = 0;
  run_all(std::chrono::milliseconds(200), [&](const Group& group) {
    std::string error;
    try {
      patiently(group, [&] {
        if (group.rank() != 1) return;
        std::unique_lock lock(mutex);  // a disk that does not answer, until the others have gone on
        told.wait(lock, [&] { return refused == 2; });
      });
    } catch (const TimeoutError& thrown) {
      error = thrown.what();
    }
    EXPECT_THAT(error, HasSubstr("rank 1 has written nothing for"));
    const std::lock_guard lock(mutex);
    ++refused;
    told.notify_all();
  });
}

TEST(Patience, ThrowsWhatTheActThrowsWhenAllAreDone) {
  run_all(std::chrono::seconds(60), [&](const Group& group) {
    std::string error;
    try {
      patiently(group, [&] {
        if (group.rank() == 2) throw ConfigError("no room");
      });
    } catch (const ConfigError& thrown) {
      error = thrown.what();
    }
    EXPECT_EQ(error, group.rank() == 2 ? "no room" : "");
    group.barrier().wait();
  });
}

}  // namespace
}  // namespace dear::checkpoint::patience_test
