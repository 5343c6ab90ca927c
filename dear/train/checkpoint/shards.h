#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dear/base/archive/zip_reader.h"
#include "dear/train/checkpoint/checkpoint.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/data_parallel/training_state.h"

// Checkpoints of a shard a rank: a folder with a file of each, such as 5f3a9c01-00000-of-00004.pt, whose
// first word those that were saved together have in common. A shard has runs of elements of the tensors, in
// the order in which they lie in memory, and says which; all of them together have each element once. Rank
// 0's has all else, too.
namespace dear::checkpoint {

// The copy of all that this rank saves, in memory, and the name of its file.
struct Shard {
  std::shared_ptr<CopySink> copies;
  std::string file;
};
// All ranks together.
Shard copy_shard(TrainingState& state, const Position& position, RandomState random, PartTensors parts);
// Removes from the folder, once a shard and those saved with it are there, all that were saved before.
void remove_other_shards(const std::string& folder, const std::string& file);

// Shards that were saved together, by rank.
using Shards = std::vector<archive::ZipReader>;
// Those of a folder. ConfigError where one is not there or is damaged. All ranks together: each looks at the
// bytes of some.
std::shared_ptr<const Shards> open_shards(const Group& group, const std::string& folder);
// Puts them into the training; all ranks together, and each reads what it needs. Errors as of
// load_checkpoint().
Position load_shards(TrainingState& state, std::shared_ptr<const Shards> shards,
                     const CheckpointOptions& options);

}  // namespace dear::checkpoint
