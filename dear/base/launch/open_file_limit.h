#pragma once

#include <algorithm>
#include <sys/resource.h>

#include <fmt/format.h>

#include "dear/base/launch/rank_process.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {

// Raises the limit of open files while it lives, so that there is room for four files a rank.
class OpenFileLimit {
 public:
  explicit OpenFileLimit(int ranks, int restarts) : before_(limit_of_open_files()) {
    const rlim_t needed = 64 + 4 * static_cast<rlim_t>(ranks);
    const rlim_t best = needed + 4 * static_cast<rlim_t>(restarts);
    if (needed > before_.rlim_max) {
      throw TransportError(
          fmt::format("{} ranks need {} open files, and this system allows {}; start fewer ranks, or raise "
                      "the limit (ulimit -Hn)",
                      ranks, needed, before_.rlim_max));
    }
    const rlimit wanted{.rlim_cur = std::max(std::min(best, before_.rlim_max), before_.rlim_cur),
                        .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &wanted);
  }
  ~OpenFileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  OpenFileLimit(const OpenFileLimit&) = delete;
  OpenFileLimit& operator=(const OpenFileLimit&) = delete;

  [[nodiscard]] const rlimit& before() const { return before_; }

 private:
  rlimit before_;
};

}  // namespace dear::launch
