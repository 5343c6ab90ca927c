#pragma once

#include <cstdint>
#include <vector>

#include "dear/collective/group.h"
#include "dear/exec/drive.h"
#include "dear/fusion/grouping.h"
#include "dear/schedule/schedule.h"
#include "dear/workload/workload.h"

namespace dear {

struct ReplayOptions {
  std::int64_t iterations = 32;  // at least 2
};

struct Replayed {
  // Of one iteration after the other, from the end of its commit to that of the next: one less than
  // iterations.
  std::vector<double> iteration_seconds;
  // What its computation takes, as the workload has it: forward, backward, and updates on the compute lane.
  double compute_seconds = 0;
  std::vector<exec::StepSpan> spans;  // of this rank; seconds of the steady clock
};

// Plays a workload with its computation timed and its communication real: compute and update steps last as
// long as the workload says, and take no processor; collectives are those of `group`, on buffers as large as
// training's. So a network is measured under a schedule without a model, libtorch or data.
//
// Every rank of the group calls it with the same schedule, workload and grouping; a rank with other ones is a
// MismatchError on each. Returns on all when the last iteration is done. ConfigError for too few iterations;
// ScheduleError for a policy with collectives of something else than buckets or their chunks, or not of all
// ranks; what the group throws when a rank fails. One thread of the caller's and the group's.
//
// [Note: replayed time] A step that computes begins when the last step before it ended by its own times, not
// when this thread got to know it, so that wake-ups, of some 50 us each, do not add up over hundreds of
// layers. A step that a collective released begins when that collective ended.
Replayed replay(const Schedule& schedule, const Workload& workload, const Grouping& grouping, Group group,
                const ReplayOptions& options = {});

}  // namespace dear
