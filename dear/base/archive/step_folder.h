#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "dear/base/os/at_fork.h"
#include "dear/base/os/file_descriptor.h"

namespace dear::archive {

// A folder with one file, or one folder of shards, for each step at which training was saved:
// step-00000100.pt, step-00000100. Nothing points at the newest: it is found by looking, so that nothing can
// point at what is not there.
class StepFolder {
 public:
  explicit StepFolder(std::string path);  // touches nothing
  ~StepFolder();
  StepFolder(const StepFolder&) = delete;
  StepFolder& operator=(const StepFolder&) = delete;

  struct Saved {
    std::int64_t step;
    std::string path;
    bool sharded;            // a folder
    bool cut_short = false;  // a folder that lacks shards, as one whose process was killed in the save
  };
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Saved of(std::int64_t step, bool sharded) const;
  // Newest first; none where there is no such folder. ConfigError where it cannot be read, or is a file.
  [[nodiscard]] std::vector<Saved> saved() const;
  // Throws the ConfigError of a training that finds checkpoints here and can read none, the oldest because of
  // `why`: it must not begin anew by itself.
  [[noreturn]] void refuse_all(const std::string& why) const;

  // For the one object of one process that writes: makes the folder, and removes what killed processes left
  // in it. ConfigError where that fails, or where another one lives, of this program or of another run.
  void open_for_writing();
  // Removes what is older than the newest `keep` that are not cut short. `step`: that of the newest one, of
  // which other hosts have the shards that are not here, as of those before it. ConfigError for what cannot
  // be removed.
  void keep_newest(int keep, std::optional<std::int64_t> step = std::nullopt) const;

 private:
  std::string path_;
  os::FileDescriptor lock_;
  os::NotInChildren kept_out_;  // so that the lock ends with this process
  pid_t owner_ = -1;            // the process that took the lock, and not one that it forked
};

}  // namespace dear::archive
