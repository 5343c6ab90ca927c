#include "dear/base/archive/step_folder.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::archive::step_folder_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class StepFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "dear-steps-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  void touch(const std::string& name) const { std::ofstream(folder_ / name) << "x"; }
  [[nodiscard]] std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    for (const auto& saved : StepFolder(folder_.string()).saved()) found.push_back(saved.step);
    return found;
  }
  fs::path folder_;
};

TEST_F(StepFolderTest, ListsWhatWasSavedNewestFirst) {
  for (const char* name :
       {"step-00000002.pt", "step-00000010.pt", "step-123456789.pt", "step-x.pt", "other", "step-5"})
    touch(name);
  fs::create_directory(folder_ / "step-00000007");
  EXPECT_THAT(steps(), ElementsAre(123456789, 10, 7, 2));
  const StepFolder folder(folder_.string());
  EXPECT_TRUE(folder.saved().at(2).sharded);
  EXPECT_EQ(folder.of(10, false).path, folder.saved().at(1).path);
}

TEST_F(StepFolderTest, KeepsTheNewest) {
  for (const char* name : {"step-00000002.pt", "step-00000010.pt", "step-00000004.pt"}) touch(name);
  fs::create_directory(folder_ / "step-00000007");
  touch("step-00000007/shard");
  StepFolder(folder_.string()).keep_newest(2);
  EXPECT_THAT(steps(), ElementsAre(10, 7));
  StepFolder(folder_.string()).keep_newest(0);
  EXPECT_THAT(steps(), ElementsAre(10));
}

TEST_F(StepFolderTest, DoesNotCountSavesThatWereCutShort) {
  for (const char* name : {"step-00000002.pt", "step-00000004.pt"}) touch(name);
  for (const char* name : {"step-00000003", "step-00000007"}) fs::create_directory(folder_ / name);
  touch("step-00000007/00000001-00000-of-00002.pt");
  const auto saved = StepFolder(folder_.string()).saved();
  ASSERT_EQ(saved.size(), 4U);
  EXPECT_TRUE(saved[0].cut_short && saved[2].cut_short);
  EXPECT_FALSE(saved[1].cut_short || saved[3].cut_short);
  StepFolder(folder_.string()).keep_newest(1);
  EXPECT_THAT(steps(), ElementsAre(7, 4));
  touch("step-00000007/00000001-00001-of-00002.pt");
  StepFolder(folder_.string()).keep_newest(1);
  EXPECT_THAT(steps(), ElementsAre(7));
}

TEST_F(StepFolderTest, IsMadeAndHasOneWriter) {
  const std::string path = (folder_ / "a" / "b").string();
  EXPECT_TRUE(StepFolder(path).saved().empty());
  StepFolder first(path);
  first.open_for_writing();
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_THAT([&] { StepFolder(path).open_for_writing(); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("another run"), HasSubstr("of this program"))));
}

// It does as workers do that load data: a forked process holds what is open, ends at some time, and lets
// nothing go.
TEST_F(StepFolderTest, HasItsNextWriterAlthoughAForkedProcessLives) {
  std::array<int, 2> end{};
  ASSERT_EQ(::pipe(end.data()), 0);
  auto first = std::make_unique<StepFolder>(folder_.string());
  first->open_for_writing();
  const auto forked = [&](const auto& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      ::_exit(0);
    }
    return child;
  };
  const pid_t ended = forked([&] { first.reset(); });
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  EXPECT_THROW(StepFolder(folder_.string()).open_for_writing(), ConfigError);
  const pid_t living = forked([&] {
    ::close(end[1]);
    char byte = 0;
    static_cast<void>(::read(end[0], &byte, 1));
  });
  first.reset();
  EXPECT_NO_THROW(StepFolder(folder_.string()).open_for_writing());
  ::close(end[1]);
  EXPECT_EQ(::waitpid(living, nullptr, 0), living);
  ::close(end[0]);
}

TEST_F(StepFolderTest, HasItsNextWriterAlthoughAChildOfAKilledOneLives) {
  std::array<int, 2> end{};
  ASSERT_EQ(::pipe2(end.data(), O_CLOEXEC), 0);
  const pid_t killed = ::fork();
  if (killed == 0) {
    StepFolder folder(folder_.string());
    folder.open_for_writing();
    std::array<int, 2> runs{};
    static_cast<void>(!::pipe2(runs.data(), O_CLOEXEC));
    char byte = 0;
    if (::fork() == 0) {
      ::close(end[1]);
      static_cast<void>(!::write(runs[1], &byte, 1));
      static_cast<void>(!::read(end[0], &byte, 1));
      ::_exit(0);
    }
    static_cast<void>(!::read(runs[0], &byte, 1));
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(killed, &status, 0), killed);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_NO_THROW(StepFolder(folder_.string()).open_for_writing());
  ::close(end[1]);
  ::close(end[0]);
}

TEST_F(StepFolderTest, LosesWhatKilledWritersLeft) {
  touch(".dear-1-0.tmp");
  StepFolder(folder_.string()).open_for_writing();
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(StepFolderTest, ThatIsAFileIsRefused) {
  touch("file");
  EXPECT_THAT([&] { StepFolder((folder_ / "file").string()).open_for_writing(); },
              ThrowsMessage<ConfigError>(HasSubstr("file")));
  EXPECT_THAT([&] { static_cast<void>(StepFolder((folder_ / "file").string()).saved()); },
              ThrowsMessage<ConfigError>(HasSubstr("name a folder")));
  EXPECT_THROW(StepFolder(""), ConfigError);
}

}  // namespace
}  // namespace dear::archive::step_folder_test
