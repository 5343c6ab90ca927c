#pragma once

#include <cstdint>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/encoding.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/workload/layers/workload.h"

namespace dear {

struct ReplayOptions {
  std::int64_t iterations = 32;  // at least 2
  // By bucket, where the schedule has encoded ones: how long the codec takes.
  std::vector<Encoding> encodings{};
  bool codec_shares_compute = false;  // see CodecTimes: then it and the program work in turns
};

struct Replayed {
  // From the end of the commit of each iteration to that of the next: one value less than iterations.
  std::vector<double> iteration_seconds;
  // Time of computation in an iteration by the workload: forward, backward, and updates on the compute lane.
  double compute_seconds = 0;
  std::vector<conductor::StepSpan> spans;  // of this rank; seconds of the steady clock
};

// Plays a workload with its computation timed and its communication real: compute and update steps last as
// long as the workload says, and take no processor; collectives are those of `group`, on buffers as large as
// training's. Encoded gradients travel in as many bytes as foreseen, and their codec is timed as well. So a
// network is measured under a schedule without a model, libtorch or data.
//
// Every rank of the group calls it, with the same schedule, workload and grouping; other ones on a rank are a
// MismatchError on every rank. Returns when the last iteration is done. ConfigError for fewer than 2
// iterations; ScheduleError for a policy whose collectives are not all of buckets and of all ranks; the
// group's error when a rank fails. Runs on the caller's thread and the group's.
//
// [Note: replayed time] A step of computation begins when the step before it was due to end, not when this
// thread woke, so that delays of waking, about 50 us each, do not add up over hundreds of layers. A step that
// a collective released begins when that collective ended.
Replayed replay(const Schedule& schedule, const Workload& workload, const Grouping& grouping, Group group,
                const ReplayOptions& options = {});

}  // namespace dear
