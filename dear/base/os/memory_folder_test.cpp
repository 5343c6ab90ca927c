#include "dear/base/os/memory_folder.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace dear::os {
namespace {

namespace fs = std::filesystem;

TEST(MemoryFolder, IsOfThisUserAndGoesWithWhatIsInIt) {
  std::string path;
  {
    const MemoryFolder one, other;
    path = one.path();
    EXPECT_NE(one.path(), other.path());
    EXPECT_EQ(path.find("/dev/shm/"), 0U);
    struct stat found{};
    ASSERT_EQ(::stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0700U);
    fs::create_directory(path + "/within");
    std::ofstream(path + "/within/file") << "content";
    EXPECT_TRUE(fs::exists(other.path()));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(MemoryFolder, OfAKilledProcessIsRemovedByTheNext) {
  int tell[2];
  ASSERT_EQ(::pipe(tell), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const MemoryFolder folder;
    std::ofstream(folder.path() + "/file") << "content";
    static_cast<void>(!::write(tell[1], folder.path().data(), folder.path().size()));
    ::close(tell[1]);
    ::pause();
  }
  ::close(tell[1]);
  std::string path(200, '\0');
  path.resize(static_cast<std::size_t>(::read(tell[0], path.data(), path.size())));
  ::close(tell[0]);
  {
    const MemoryFolder while_it_lives;
  }
  EXPECT_TRUE(fs::exists(path + "/file"));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(fs::exists(path + "/file"));
  {
    const MemoryFolder next;
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace dear::os
