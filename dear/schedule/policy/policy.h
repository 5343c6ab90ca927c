#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dear/fusion/grouping.h"
#include "dear/schedule/schedule.h"
#include "dear/workload/workload.h"

namespace dear {

// How a policy turns a workload and a grouping into a schedule, and what it can reach at best.
struct Policy {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view source;   // paper or system, with DOI or arXiv number
  Schedule (*make)(const Workload& workload, const Grouping& grouping);
  // Closed form for the iteration time when buckets are infinitely fine: f, b forward and backward, r the
  // all-reduce of everything, all in seconds.
  double (*bound)(double f, double b, double r);
};

const std::vector<Policy>& policies();             // the one table
const Policy& find_policy(std::string_view name);  // ConfigError naming those there are

// [Note: lanes of the policies]
// serial, wfbp: updates stand on the compute lane, after the commit: step() waits for each reduction and
// updates. dear, dear-replicated: updates stand on a lane of their own, so that they overlap with the next
// forward.
Schedule make_serial(const Workload& workload, const Grouping& grouping);
Schedule make_wfbp(const Workload& workload, const Grouping& grouping);
Schedule make_dear_replicated(const Workload& workload, const Grouping& grouping);
Schedule make_dear(const Workload& workload, const Grouping& grouping);

}  // namespace dear
