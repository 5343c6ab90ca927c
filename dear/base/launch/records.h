#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "dear/base/launch/rank_environment.h"
#include "dear/base/os/file_descriptor.h"

namespace dear::launch {

// A rank as its launcher sees it, for the records of a job.
struct SeenRank {
  int rank = 0;
  pid_t pid = -1;
  bool ended = false;
  int code = 0, signal = 0;  // how it ended
  bool told_to_end = false;  // before it ended, by the launcher
};

// Records of a start again lie beside those of the start before.
std::string folder_of_start(const std::string& record, int restarts);

// The flight records of the ranks of a job (base/recorder), in memory that the launcher holds: a rank that is
// killed loses nothing, and `dear diagnose PID` reads them while the job runs. With a folder they are written
// there: when a rank fails, before the others are ended, with the states of their processes and Python's
// stacks; when a signal asks for it; and at the end.
class Records {
 public:
  // ConfigError where the folder cannot be made or written. Records of an earlier job in it are removed.
  // Keeps records of `ranks` ranks of this host, from `first` on. `leads`: this launcher writes job.json,
  // which is that of all hosts.
  Records(int ranks, std::string folder, int first = 0, bool leads = true);

  // For the environment of a rank; nothing where that names a place of its own.
  [[nodiscard]] Variables variables(int rank) const;
  // Writes what ranks that live do now: rank-R.state, and rank-R.stacks where they can say; then write().
  // Takes up to 0.5 s.
  void look(const std::vector<SeenRank>& ranks) const;
  // Writes rank-R.record and job.json. `verdict`: the first cause, "" for none, of `culprit`.
  void write(const std::vector<SeenRank>& ranks, int culprit, const std::string& verdict) const;
  // The furthest step of the training that a rank has come to; 0 where no rank says.
  [[nodiscard]] std::int64_t furthest_step() const;
  [[nodiscard]] bool are_written() const { return !folder_.empty(); }

 private:
  [[nodiscard]] std::string file(int rank, const char* ending) const;
  // Null for a rank of another host.
  [[nodiscard]] const os::FileDescriptor* memory_of(int rank) const;
  std::string folder_;
  int first_;
  bool leads_;
  std::vector<os::FileDescriptor> memory_;  // by rank of this host
  bool elsewhere_ = false;                  // the environment names another place
};

}  // namespace dear::launch
