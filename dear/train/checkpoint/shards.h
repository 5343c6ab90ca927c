#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/archive/shard_set.h"
#include "dear/base/archive/value.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/base/vocabulary/range.h"
#include "dear/train/checkpoint/checkpoint.h"
#include "dear/train/checkpoint/loading.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/data_parallel/training_state.h"

// Checkpoints of a shard a rank, which has what that rank updates, and its part of all else.
namespace dear::checkpoint {

// The copy of all that this rank saves, in memory, and the name of its file.
struct Shard {
  std::shared_ptr<CopySink> copies;
  std::string file;
};
// All ranks together. `describe`: the pickle of a file with all of the checkpoint.
Shard copy_shard(train::TrainingState& state, RandomState random, const Describe& describe);
// Shards that were saved together, as one checkpoint, of which each rank has read some: see ShardSet.
class Shards : public Source {
 public:
  // Opens those of a folder; of several that are whole, the newest. ConfigError, on every rank, where one is
  // not there or is damaged. All ranks together.
  static std::shared_ptr<Shards> open(const Group& group, const std::string& folder);
  Shards(Group group, const std::vector<std::string>& paths, archive::ShardSet set,
         const std::string& folder);

  [[nodiscard]] const std::string& manifest() const { return set_.manifest(); }
  void require(const archive::TensorRecord& record) const override;
  [[nodiscard]] torch::Tensor tensor(const archive::TensorRecord& record) const override;
  [[nodiscard]] torch::Tensor whole(const archive::TensorRecord& record) const override;
  // Whether every rank has read all of it.
  [[nodiscard]] bool is_small(const archive::TensorRecord& record) const;
  // From now on tensor() has these elements, too, of a tensor that lies in memory in these strides: where
  // another rank has read them, whose sums that rank has checked, this one reads them from the files.
  void want(const archive::TensorRecord& record, const std::vector<std::int64_t>& strides,
            const Range& elements);
  // Lets go of what this rank has of it.
  void forget(const archive::TensorRecord& record);

  // Puts back what this rank has saved for itself; all ranks together. Where there are other ranks, nothing,
  // which is said.
  [[nodiscard]] std::optional<CompressionStates> restore_this_rank(const train::TrainingState& state,
                                                                   const CheckpointOptions& options);

 private:
  struct Wanted {
    const archive::ShardSet::Piece* piece;
    Range elements;
  };

  Group group_;
  archive::ShardSet set_;
  std::vector<archive::ZipReader> files_;
  std::map<std::string, std::vector<Wanted>> wanted_;
  mutable torch::Tensor room_;  // of the tensor that was asked for last
};

// Puts them into the training; all ranks together. Errors as of load_checkpoint().
Position load_shards(train::TrainingState& state, const std::shared_ptr<Shards>& shards,
                     const CheckpointOptions& options);
// The vectors of the optimiser, whose records `record_of` names, from the shards.
train::EngineState::Values values_of(
    const std::shared_ptr<Shards>& shards, const train::TrainingState& state,
    std::function<archive::TensorRecord(std::size_t, const std::string&)> record_of);

}  // namespace dear::checkpoint
