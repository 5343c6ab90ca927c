#pragma once

#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/train/engine/engine_state.h"

// Tensors of a checkpoint on their way between ranks. All ranks together.
namespace dear::train {

// Without gaps, in the memory order that the tensor has where it has none.
torch::Tensor dense(const torch::Tensor& tensor);
// 1-D, shared: in the order in which it lies in memory.
torch::Tensor flat_view(const torch::Tensor& dense);

// Makes tensors the same on every rank, which has them in the same shapes and types: rank 0's; or what ranks
// have together, where each has some elements and zeros in place of the others'. Nothing where every rank has
// them.
void share(const Group& group, const std::vector<torch::Tensor>& tensors, EngineState::Holder holder);

// Sends each rank tensors of its own, on the CPU and without gaps, 16 MiB at a time: `of_ranks` counts on
// rank 0, and has them by rank; `mine` are those of this rank, in the same shapes and types, and get the
// values. `bytes` has every rank's sum of their bytes.
void scatter(const Group& group, const std::vector<std::vector<torch::Tensor>>& of_ranks,
             const std::vector<torch::Tensor>& mine, const std::vector<std::int64_t>& bytes);

}  // namespace dear::train
