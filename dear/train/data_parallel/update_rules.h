#pragma once

#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/train/data_parallel/data_parallel_options.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/optim/optimizer.h"
#include "dear/train/optim/sharded_optimizer.h"

namespace dear::train {

// How parameters are updated: by whom, which of them one rank updates whole, and in which precision.
struct UpdateRules {
  // Why the program's optimiser updates the parameters, where they are, on every rank; "" where updates are
  // of shards. See [Note: updates of the program].
  std::string of_program{};
  // By trained parameter: the cost of its update where one rank makes it whole; 0 where shards may cut it.
  // What the options say, or else for a matrix of m rows and n columns (all dimensions but the first) m n
  // min(m, n), as an orthogonalisation takes, and for a vector its elements.
  std::vector<double> whole_costs{};
  optim::Widening widening{};

  // Those of the options. Tells the optimiser how its tensors are owned. `moved`: parameters that lie in
  // buckets. ConfigError for an optimiser, or for memory, that cannot be trained so; for one that looks at
  // more than an element under a policy that updates during the backward pass (there chunks of a tensor are
  // updated when the gradients of others have not come); and for a cost that is not above 0.
  static UpdateRules choose(Optimizer& optimizer, const DataParallelOptions& options,
                            bool updates_in_backward, const ModelScan& scanned,
                            const optim::TensorSet& moved = {});
  // Where the program must make the updates of one rank, it makes those of all. ConfigError, on every rank,
  // for options that are of shards then. All ranks together, before agree_on().
  void agree_who_updates(const Group& group, const DataParallelOptions& options);
  // MismatchError, on every rank, where ranks have chosen otherwise. Takes the seed of rank 0's default
  // generator (torch::manual_seed) for what is drawn.
  void agree_on(const Group& group);
  [[nodiscard]] bool by_program() const { return !of_program.empty(); }
};

}  // namespace dear::train
