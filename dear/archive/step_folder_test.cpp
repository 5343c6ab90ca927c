#include "dear/archive/step_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"

namespace dear::archive::step_folder_test {
namespace {

namespace fs = std::filesystem;
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

TEST_F(StepFolderTest, IsMadeAndHasOneWriter) {
  const std::string path = (folder_ / "a" / "b").string();
  EXPECT_TRUE(StepFolder(path).saved().empty());
  StepFolder first(path);
  first.open_for_writing();
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_THAT([&] { StepFolder(path).open_for_writing(); },
              ThrowsMessage<ConfigError>(HasSubstr("another run")));
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
