#include "dear/base/os/atomic_file.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/bytes_written.h"
#include "dear/base/vocabulary/error.h"

namespace dear::os::atomic_file_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class AtomicFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "dear-atomic-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    return names;
  }

  fs::path folder_;
};

TEST_F(AtomicFile, KeepsEveryByteAndLeavesNothingElse) {
  std::string content;
  for (int i = 0; i < 300'000; ++i) content += static_cast<char>(i % 256);
  write_file_atomically(path("file"), content);
  EXPECT_EQ(read_file(path("file")), content);
  EXPECT_THAT(files(), ::testing::ElementsAre("file"));
}

TEST_F(AtomicFile, MayBeEmpty) {
  write_file_atomically(path("file"), "");
  EXPECT_EQ(read_file(path("file")), "");
}

TEST_F(AtomicFile, ReplacesALongerFileAndKeepsItsPermissions) {
  write_file_atomically(path("file"), "a long old content");
  ASSERT_EQ(::chmod(path("file").c_str(), 0640), 0);
  write_file_atomically(path("file"), "new");
  EXPECT_EQ(read_file(path("file")), "new");
  EXPECT_EQ(fs::status(path("file")).permissions(), fs::perms{0640});
}

TEST_F(AtomicFile, ReadersSeeTheOldFileWhileTheyHoldIt) {
  write_file_atomically(path("file"), "old");
  const int held = ::open(path("file").c_str(), O_RDONLY);
  ASSERT_GE(held, 0);
  write_file_atomically(path("file"), "new");
  std::array<char, 8> bytes{};
  EXPECT_EQ(::read(held, bytes.data(), bytes.size()), 3);
  EXPECT_STREQ(bytes.data(), "old");
  ::close(held);
}

TEST_F(AtomicFile, WritesThroughASymbolicLink) {
  write_file_atomically(path("file"), "old");
  fs::create_symlink("file", path("link"));
  write_file_atomically(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("file")), "new");
}

TEST_F(AtomicFile, TakesTheLongestName) {
  const std::string name(255, 'x');
  write_file_atomically(path(name), "content");
  EXPECT_EQ(read_file(path(name)), "content");
}

TEST_F(AtomicFile, WritesARelativeNameIntoTheCurrentFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  write_file_atomically("file", "content");
  fs::current_path(before);
  EXPECT_EQ(read_file(path("file")), "content");
}

TEST_F(AtomicFile, ConcurrentWritersLeaveOneWholeFile) {
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'e'; ++c) {
    writers.emplace_back([this, c] {
      for (int i = 0; i < 20; ++i) write_file_atomically(path("file"), std::string(10'000, c));
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string content = read_file(path("file"));
  EXPECT_EQ(content, std::string(10'000, content.at(0)));
  EXPECT_THAT(files(), ::testing::ElementsAre("file"));
}

TEST_F(AtomicFile, WritesIntoAPipeAsItIs) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] {
    std::ifstream pipe(path("pipe"));
    received.assign(std::istreambuf_iterator<char>(pipe), {});
  });
  write_file_atomically(path("pipe"), "content");
  reader.join();
  EXPECT_EQ(received, "content");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(AtomicFile, WritesIntoADescriptorOfThisProcessWhereItStands) {
  const int file = ::open(path("redirected").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::write(file, "before ", 7), 7);
  write_file_atomically("/dev/fd/" + std::to_string(file), "content");
  ASSERT_EQ(::write(file, " after", 6), 6);
  ::close(file);
  EXPECT_EQ(read_file(path("redirected")), "before content after");
}

TEST_F(AtomicFile, WritesToStandardOutput) {
  ::testing::internal::CaptureStdout();
  std::printf("before ");
  write_file_atomically("/dev/stdout", "content");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "before content");
}

TEST_F(AtomicFile, RefusalsNameFileReasonAndRemedy) {
  EXPECT_THAT(
      [&] { write_file_atomically(path("no/file"), "x"); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr(path("no/file")), HasSubstr("No such file or directory"),
                                       HasSubstr("its folder exists"))));
  EXPECT_THAT(
      [&] { write_file_atomically(folder_.string(), "x"); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("Is a directory"), HasSubstr("instead of a folder"))));
  EXPECT_THAT([&] { write_file_atomically("/dev/full", "x"); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("'/dev/full'"), HasSubstr("No space left"), HasSubstr("free some space"))));
  EXPECT_THAT([&] { write_file_atomically("", "x"); }, ThrowsMessage<ConfigError>(HasSubstr("''")));
  EXPECT_THAT([&] { write_file_atomically("/dev/fd/987654", "x"); },
              ThrowsMessage<ConfigError>(HasSubstr("Bad file descriptor")));
  EXPECT_THAT([&] { write_file_atomically(path(std::string(256, 'x')), "x"); },
              ThrowsMessage<ConfigError>(HasSubstr("File name too long")));
  EXPECT_THAT(files(), ::testing::IsEmpty());
}

TEST_F(AtomicFile, ReadingRefusesWhatIsNotThere) {
  EXPECT_THAT(
      [&] { read_file(path("missing")); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr(path("missing")), HasSubstr("No such file or directory"),
                                       HasSubstr("check that the path is right"))));
  EXPECT_THAT(
      [&] { read_file(folder_.string()); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("Is a directory"), HasSubstr("instead of a folder"))));
}

TEST_F(AtomicFile, ReadingRefusesWhatMayHaveNoEnd) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& endless : {path("pipe"), std::string("/dev/zero"), std::string("/dev/full")})
    EXPECT_THAT([&] { read_file(endless); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr(endless), HasSubstr("pipe or a device"))));
  write_file_atomically(path("file"), "x");
  ASSERT_EQ(truncate(path("file").c_str(), 1 << 20), 0);
  EXPECT_EQ(read_file(path("file"), 1 << 20).size(), std::size_t{1} << 20);
  EXPECT_THAT([&] { read_file(path("file"), (1 << 20) - 1); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr(path("file")), HasSubstr("1048575 bytes"))));
}

// Anybody who may write into the folder of checkpoints can put one there.
TEST_F(AtomicFile, WaitsForNoPipeThatItDidNotMake) {
  const std::string pipe = path(".dear-1-0.tmp");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  remove_abandoned_files(folder_.string());
  EXPECT_TRUE(fs::exists(pipe));
}

TEST_F(AtomicFile, CountsWhatIsWritten) {
  const std::int64_t before = bytes_written();
  write_file_atomically(path("file"), "text");
  EXPECT_EQ(bytes_written() - before, 4);
}

}  // namespace
}  // namespace dear::os::atomic_file_test
