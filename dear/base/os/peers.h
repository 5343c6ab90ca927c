#pragma once

#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "dear/base/os/file_descriptor.h"

namespace dear::os {

// The processes of the ranks, as far as they can be watched. Ranks that are threads of this process need no
// watching.
class Peers {
 public:
  Peers() = default;
  // One pidfd per rank, in order. They tell about the very process even after its number is used again.
  explicit Peers(std::vector<FileDescriptor> processes);
  // Messages call rank i names[i] from now on; an empty vector changes nothing.
  void rename(std::vector<int> names) { names_ = std::move(names); }

  [[nodiscard]] std::string name(int rank) const;  // "rank 2 (pid 123)"; "rank 2" when unknown
  [[nodiscard]] pid_t pid(int rank) const;         // 0 when unknown
  [[nodiscard]] bool ended(int rank) const;
  [[nodiscard]] bool stopped(int rank) const;  // by a signal or a debugger

  // Both return a sentence for an error message: about a rank that will not come any more, and about ranks
  // that did not come in time. `what` says what the others do meanwhile: "wait in collective 3".
  [[nodiscard]] std::string is_gone(int rank, bool left, const std::string& what) const;
  [[nodiscard]] std::string are_late(const std::vector<int>& ranks, double waited_seconds,
                                     const std::string& what) const;

 private:
  struct Process {
    FileDescriptor file;
    pid_t pid = 0;
  };
  std::vector<Process> processes_;
  std::vector<int> names_;
};

// Lists ranks as "ranks 2, 3" or "rank 2".
std::string list_ranks(const std::vector<int>& ranks);

// Opens a pidfd of the process. TransportError when the kernel cannot watch it.
FileDescriptor watch_process(pid_t pid);

}  // namespace dear::os
