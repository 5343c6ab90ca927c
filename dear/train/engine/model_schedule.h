#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/vocabulary/ids.h"
#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/train/engine/engine_options.h"
#include "dear/train/model/model_scan.h"
#include "dear/workload/layers/workload.h"

namespace dear::train {

// Returns a model as a schedule sees it: layers and tensors in the order of their use, without times.
// `order`: indices into `parameters` by first use; `layer_of[i]`: the layer of parameters[i], numbered in
// forward order.
Workload workload_of(const std::vector<TrainedParameter>& parameters, const std::vector<std::size_t>& order,
                     const std::vector<LayerId>& layer_of);
// Adds the times of a profile, of as many layers.
void add_times(const EngineProfile& profile, Workload& workload);

// Returns the rows of the matrix that each tensor is: its first dimension; 1 for a vector.
std::vector<std::int64_t> rows_of_tensors(const std::vector<TrainedParameter>& parameters,
                                          const std::vector<std::size_t>& order);
// Makes the schedule of a grouping under these options, the same on every rank where they are.
Schedule make_training_schedule(const Workload& workload, const Grouping& grouping,
                                const EngineOptions& options, const std::vector<std::int64_t>& rows,
                                int ranks);

}  // namespace dear::train
