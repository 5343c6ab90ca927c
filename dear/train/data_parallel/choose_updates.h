#pragma once

#include "dear/comm/group/group.h"
#include "dear/train/data_parallel/data_parallel_options.h"
#include "dear/train/engine/update_rules.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/optim/optimizer.h"

namespace dear::train {

// The rules of the options. Tells the optimiser how its tensors are owned. `moved`: parameters that lie in
// buckets. ConfigError for an optimiser, or for memory, that cannot be trained so; for one that looks at more
// than an element under a policy that updates during the backward pass (there chunks of a tensor are updated
// when the gradients of others have not come); and for a cost that is not above 0.
UpdateRules choose_updates(Optimizer& optimizer, const DataParallelOptions& options, bool updates_in_backward,
                           const ModelScan& scanned, const optim::TensorSet& moved = {});
// Where the program must make the updates of one rank, it makes those of all. ConfigError, on every rank, for
// options that are of shards then. All ranks together, before agree_on_updates().
void agree_who_updates(const Group& group, const DataParallelOptions& options, UpdateRules& rules);
// MismatchError, on every rank, where ranks have chosen otherwise. Takes the seed of rank 0's default
// generator (torch::manual_seed) for what is drawn.
void agree_on_updates(const Group& group, UpdateRules& rules);

}  // namespace dear::train
