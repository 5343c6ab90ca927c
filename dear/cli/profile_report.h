#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dear/cli/train_result.h"
#include "dear/workload/workload.h"

namespace dear::cli {

// What `dear profile` measured. Spreads are over steps. Those of a pass have the workload's own figure
// (DataParallel::profile()) as median.
struct ModelProfile {
  Workload workload;  // without a name
  Spread forward_seconds, backward_seconds, update_seconds;
  Spread recorded_step_seconds;        // whole steps, while layers were watched
  Spread plain_step_seconds;           // the same without DeAR: what the watching costs is the difference
  std::int64_t frozen_parameters = 0;  // elements that are not trained: no part of the workload
  std::size_t tensors_without_gradient = 0;  // part of the workload, in layers that take no time
};

// Passes, steps and the layers that take longest, `layers` of them. Lines of text, each ended.
std::string to_text(const ModelProfile& profile, std::size_t layers);

}  // namespace dear::cli
