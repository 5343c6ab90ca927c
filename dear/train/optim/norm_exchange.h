#pragma once

#include <cstddef>
#include <vector>

#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/group.h"
#include "dear/train/optim/sharded_optimizer.h"

namespace dear::optim {

// [Note: norms of tensors] An optimiser such as LAMB takes norms of whole tensors, which may lie in the
// shards of several ranks. Between the two halves of an update of a shard, ranks tell each other the sums of
// the tensors that a border of shards cuts: at most one for each border. The small all-gather runs on a group
// of its own, from the thread that updates: that thread updates in one order on all ranks, so the order is
// the same everywhere, and the group of the buckets goes on meanwhile. Under policy dear the all-gather of
// one bucket hides that of the next bucket's norms; the first is exposed.
class NormExchange {
 public:
  // `cut`: by part, the tensors that lie on several ranks; the same on every rank. All ranks together.
  NormExchange(const Group& group, std::vector<std::vector<TensorId>> cut, std::size_t norms);

  // Adds the other ranks' sums of the part's tensors. All ranks, in the same order of parts; on one thread.
  void sum(std::size_t part, ShardedOptimizer::SumsOfTensors& sums);

 private:
  Group group_;
  std::vector<std::vector<TensorId>> cut_;
  std::size_t norms_;
  Buffer buffer_;
};

}  // namespace dear::optim
