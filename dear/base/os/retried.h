#pragma once

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace dear::os {

// Makes a system call again as long as a signal interrupts it, as some file systems let it in open() and
// fsync(), too. Returns what the last one returned, with its errno. Not for close(): Linux has closed the
// descriptor then.
template <typename Call>
auto retried(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// The entries of a folder, whose opening is made again likewise.
inline std::filesystem::directory_iterator entries_of(const std::filesystem::path& folder,
                                                      std::error_code& error) {
  std::filesystem::directory_iterator entries(folder, error);
  while (error == std::errc::interrupted) entries = std::filesystem::directory_iterator(folder, error);
  return entries;
}

}  // namespace dear::os
