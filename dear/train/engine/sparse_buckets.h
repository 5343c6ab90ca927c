#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dear/comm/buckets/sparse_bucket.h"
#include "dear/comm/group/group.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/train/engine/engine_options.h"

namespace dear::train {

class BucketStorage;
struct TrainedParameter;

// The grouping with a bucket of its own for each tensor whose gradient comes sparse, where rows could be less
// to send. `order`: as for Engine.
Grouping set_sparse_apart(const Workload& workload, Grouping grouping, const std::vector<std::size_t>& order,
                          const EngineOptions& options, const std::vector<TrainedParameter>& parameters,
                          int ranks);
// The exchange that reduces a bucket of sparse gradients; null for another bucket. `streams`: of the device
// on which the bucket lies; null elsewhere. Allocates on the group: all ranks together.
std::shared_ptr<buckets::SparseBucket> make_sparse(const BucketStorage& bucket,
                                                   const std::vector<TrainedParameter>& parameters,
                                                   const std::vector<std::size_t>& order,
                                                   const EngineOptions& options, const Group& group,
                                                   streams::BucketStreams* streams);

}  // namespace dear::train
