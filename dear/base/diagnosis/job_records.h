#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/recorder/record.h"

namespace dear::diagnose {

// A RankSeen holds all that is known of one rank; any part may be missing.
struct RankSeen {
  std::optional<recorder::Record> record;
  char state = 0;      // of its process: R, S, D, T, Z as in /proc; 0 where nobody looked
  std::string stacks;  // Python's, as faulthandler writes them
  bool ended = false;
  int code = 0, signal = 0;  // how it ended
  bool told_to_end = false;  // by the launcher, before
};

// The records of a job.
struct JobRecords {
  int ranks = 0;
  std::vector<RankSeen> seen;  // by rank
  bool live = false;           // the job runs
  struct Verdict {
    int rank = 0;
    std::string cause;
  };
  std::optional<Verdict> verdict;     // the first cause that a rank told its launcher
  std::vector<std::string> unread{};  // files that are damaged, and why
};

// Reads a folder that `dear launch --record DIR` wrote, or of DEAR_RECORD=DIR. ConfigError where it has no
// record.
JobRecords read_folder(const std::string& folder);
// Reads the records of a job that runs: the process of its `dear launch`. ConfigError where that holds no
// records.
JobRecords read_live(int launcher);

}  // namespace dear::diagnose
