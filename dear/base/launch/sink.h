#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/launch/failure_lines.h"
#include "dear/base/launch/launcher.h"
#include "dear/base/launch/rank_output.h"
#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::launch {

// Standard output or standard error, to which the same stream of every rank goes.
class Sink {
 public:
  // `who` of the options is the name under which the launcher itself writes.
  Sink(int fd, const LaunchOptions& options);

  // Whether more output is taken from the ranks: no more than its reader takes.
  [[nodiscard]] bool takes() const { return lines_.pending().size() < kMostPending; }
  [[nodiscard]] bool empty() const { return lines_.pending().empty(); }
  [[nodiscard]] int fd() const { return fd_; }

  // Reads as much as a pipe holds, and no more: a rank that never stops writing must not keep the launcher
  // from the others.
  void read_from(int rank, os::FileDescriptor& source);
  // Writes what the reader takes now. A pipe that can be written takes PIPE_BUF bytes at once.
  void write();
  std::optional<SteadyTime> show_held_back() { return lines_.show_held_back(SteadyClock::now()); }
  void finish();
  // Whether a rank has said why it failed.
  [[nodiscard]] bool knows_why() const { return knows_why_; }
  void say(const std::string& sentence);

 private:
  static constexpr std::size_t kMostPending = 1 << 18;
  // Passes on what a rank wrote, but for lines that say why it fails.
  void take(std::size_t rank, std::string_view bytes);

  int fd_;
  RankOutput lines_;
  std::size_t launcher_;                  // as a writer
  std::optional<FailureLines> failures_;  // of ranks that say why, until they are shown
  bool knows_why_ = false;
  std::vector<std::string> begun_;  // by rank, lines without their end, where failures are kept
};

}  // namespace dear::launch
