#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dear/comm/channels/channels.h"
#include "dear/comm/group/group.h"

namespace dear::agreement {

// A folder on each host, and not one that hosts share: ranks copy files of it between hosts, so that a host
// that is lost takes no file with it. All ranks together make it and make the same calls. Errors: those of
// the group; ConfigError for a file that this rank cannot read or write, when all ranks have done their part.
class HostFolders {
 public:
  // `folder` as this host names it. Ranks that give the same name of the same host share it.
  HostFolders(const Group& group, std::string folder);

  // Whether there is more than one.
  [[nodiscard]] bool several() const { return channels_ != nullptr; }
  // Whether this rank is the lowest of those that share its folder.
  [[nodiscard]] bool leads() const { return leads_; }

  [[nodiscard]] const Group& group() const { return group_; }

  // Runs what takes as long as disks and networks do, and issues no collective.
  using Run = std::function<void(const std::function<void()>&)>;
  // Copies a file of each rank, named within the folder, to the same name on the next host. Ranks send and
  // receive at once.
  void mirror(const std::string& file, const Run& run);
  // Copies files so that every host has all that any has.
  void gather(const Run& run);

 private:
  struct Copy {
    std::string file;  // within the folder
    std::int64_t bytes = 0;
    int from = 0, to = 0;  // ranks
  };
  class Lane;  // what this rank sends, or receives, one after another
  void run_all(const std::vector<Copy>& copies);

  Group group_;
  std::string folder_;
  std::vector<std::vector<int>> hosts_;  // the ranks of each
  bool leads_ = true;
  std::unique_ptr<channels::Channels> channels_;
};

}  // namespace dear::agreement
