// A writer that is killed at any moment: what was there before is there, whole.

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dear/base/archive/step_folder.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/base/archive/zip_writer.h"
#include "dear/base/vocabulary/error.h"

namespace dear::archive::killed_test {
namespace {

namespace fs = std::filesystem;
constexpr int kRecords = 20;

// Saves step after step, the newest two of which stay, and says in the pipe what it has done. Until it is
// killed.
[[noreturn]] void write_for_ever(const std::string& path, std::int64_t first, int pipe) {
  const auto tell = [pipe] { static_cast<void>(::write(pipe, "x", 1) == 1); };
  StepFolder folder(path);
  folder.open_for_writing();
  folder.keep_newest(2);  // the one before may have been killed before it did
  for (std::int64_t step = first;; ++step) {
    ZipWriter writer(folder.of(step, false).path);
    tell();
    for (int i = 0; i < kRecords; ++i) {
      writer.add("data/" + std::to_string(i), std::string(10'000, static_cast<char>('a' + step % 26)));
      tell();
    }
    writer.add("data.pkl", std::to_string(step));
    writer.finish();
    tell();
    folder.keep_newest(2);
    tell();
  }
}

TEST(Killed, AtAHundredRandomMomentsTheCheckpointsBeforeAreWhole) {
  std::string path = (fs::temp_directory_path() / "dear-killed-XXXXXX").string();
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  std::mt19937 random(1);
  std::int64_t newest = 0;
  for (int kill = 0; kill < 100; ++kill) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) write_for_ever(path, newest + 1, ends[1]);
    ::close(ends[1]);
    const int moments = static_cast<int>(random() % 60);  // two and a half checkpoints
    char byte = 0;
    for (int i = 0; i < moments; ++i) ASSERT_EQ(::read(ends[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ends[0]);

    const auto saved = StepFolder(path).saved();
    ASSERT_LE(saved.size(), 3U);
    for (const StepFolder::Saved& one : saved) {
      const ZipReader reader(one.path);
      reader.verify();
      EXPECT_EQ(reader.read_text("data.pkl"), std::to_string(one.step));
    }
    const std::int64_t now = saved.empty() ? 0 : saved.front().step;
    EXPECT_GE(now, newest);
    newest = now;
  }
  EXPECT_GT(newest, 50);
  StepFolder(path).open_for_writing();  // which removes what the killed ones left
  for (const auto& entry : fs::directory_iterator(path))
    EXPECT_TRUE(entry.path().filename().string().starts_with("step-"));
  fs::remove_all(path);
}

}  // namespace
}  // namespace dear::archive::killed_test
