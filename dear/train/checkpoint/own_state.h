#pragma once

#include <functional>
#include <optional>
#include <string>

#include <torch/types.h>

#include "dear/base/archive/value.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/train/checkpoint/checkpoint.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/data_parallel/training_state.h"

// What a checkpoint has for each rank alone: the state of libtorch's generator of random numbers, and what
// compression remembers.
namespace dear::checkpoint {

// This rank's, as a value that says where the sink has the tensors.
archive::Value own_state(train::TrainingState& state, RandomState random, TensorSink& sink);
// Every rank's, as a list of such values, by rank, in which `store` says where it has put a tensor: on rank
// 0, which gets at most one tensor of each rank at a time. All ranks together, in rounds of 16 MiB.
using Store = std::function<archive::Value(const torch::Tensor& values)>;
archive::Value gather_own_states(train::TrainingState& state, RandomState random, const Store& store);

// Puts this rank's generator back, and returns what compression remembers for this rank, from what
// gather_own_states() returned. Where the file has other ranks than the training: nothing, which is said. All
// ranks together; `of_ranks` and `reader` count on rank 0. `file` is named in errors.
std::optional<CompressionStates> restore_own(const archive::Value* of_ranks, const archive::ZipReader* reader,
                                             const std::string& file, const train::TrainingState& state,
                                             const CheckpointOptions& options);
// Does likewise from what own_state() returned and this rank has read itself. `get` returns a tensor of the
// file.
using Get = std::function<torch::Tensor(const archive::TensorRecord& record)>;
std::optional<CompressionStates> restore_this(const archive::Value& of_rank, const Get& get,
                                              const std::string& file, const train::TrainingState& state,
                                              const CheckpointOptions& options);
// Says on rank 0 what is not put back on another number of ranks.
void say_ranks(int saved, const Group& group, const CheckpointOptions& options);

}  // namespace dear::checkpoint
