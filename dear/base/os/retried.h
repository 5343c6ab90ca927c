#pragma once

#include <cerrno>

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

}  // namespace dear::os
