#pragma once

#include <vector>

#include "dear/collective/group.h"
#include "dear/optim/optimizer.h"
#include "dear/optim/sharded_optimizer.h"
#include "dear/train/data_parallel_options.h"
#include "dear/train/model_scan.h"

namespace dear::train {

// How parameters are updated: which of them one rank updates whole, and in which precision.
struct UpdateRules {
  // By trained parameter: the cost of its update where one rank makes it whole; 0 where shards may cut it.
  // What the options say, or else for a matrix of m rows and n columns (all dimensions but the first) m n
  // min(m, n), as an orthogonalisation takes, and for a vector its elements.
  std::vector<double> whole_costs{};
  optim::Widening widening{};

  // Those of the options. Tells the optimiser how its tensors are owned. ConfigError for an optimiser that
  // cannot train so, for one that looks at more than an element under a policy that updates during the
  // backward pass (there chunks of a tensor are updated when the gradients of others have not come), and for
  // a cost that is not above 0.
  static UpdateRules choose(Optimizer& optimizer, const DataParallelOptions& options,
                            bool updates_in_backward, const std::vector<TrainedParameter>& parameters);
  // MismatchError, on every rank, where ranks have chosen otherwise. Takes the seed of rank 0's default
  // generator (torch::manual_seed) for what is drawn.
  void agree_on(const Group& group);
};

}  // namespace dear::train
