#include "dear/base/os/remove_tree.h"

#include <cerrno>
#include <cstdio>
#include <ftw.h>

namespace dear::os {

int remove_tree(const std::string& path) {
  constexpr int kOpenFolders = 16;
  const auto remove_one = [](const char* name, const struct stat*, int, struct FTW*) {
    return ::remove(name) == 0 || errno == ENOENT ? 0 : errno;
  };
  const int result = ::nftw(path.c_str(), remove_one, kOpenFolders, FTW_DEPTH | FTW_PHYS);
  if (result >= 0) return result;
  return errno == ENOENT ? 0 : errno;
}

}  // namespace dear::os
