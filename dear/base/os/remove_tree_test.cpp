#include "dear/base/os/remove_tree.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace dear::os::remove_tree_test {
namespace {

namespace fs = std::filesystem;

TEST(RemoveTree, RemovesFoldersFilesAndLinksAndNothingElse) {
  std::string name = (fs::temp_directory_path() / "dear-remove-tree-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const fs::path top = name;
  fs::create_directories(top / "tree" / "inner" / "empty");
  std::ofstream(top / "tree" / "inner" / "file") << "content";
  std::ofstream(top / "kept") << "content";
  fs::create_symlink(top / "kept", top / "tree" / "link");
  EXPECT_EQ(remove_tree((top / "tree").string()), 0);
  EXPECT_FALSE(fs::exists(top / "tree"));
  EXPECT_TRUE(fs::exists(top / "kept"));
  EXPECT_EQ(remove_tree((top / "tree").string()), 0) << "it is not there any more";
  EXPECT_EQ(remove_tree((top / "kept" / "below").string()), ENOTDIR);
  EXPECT_EQ(remove_tree(name), 0);
  EXPECT_FALSE(fs::exists(top));
}

}  // namespace
}  // namespace dear::os::remove_tree_test
