#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/base/vocabulary/say.h"

namespace dear {

class DataParallel;

// Where in its training a program was, by its own count.
struct Position {
  std::int64_t step = 0;
  std::map<std::string, std::string> more{};  // whatever else the program needs to go on: {"epoch", "3"}
};

// RandomState names the generators of random numbers that are saved and put back: libtorch's on the CPU, of
// each rank.
enum class RandomState : std::uint8_t { of_each_rank, none };

// A CheckpointPart is saved with a training under its name: tensors that are the same on every rank, such as
// dear::Kfac::state(). Rank 0's are saved; a Python program finds them under "extra".
struct CheckpointPart {
  std::string name;
  // Both are called on every rank, between a step() and the next backward.
  std::function<std::map<std::string, torch::Tensor>()> save;
  std::function<void(const std::map<std::string, torch::Tensor>& saved)> load;
};

struct CheckpointOptions {
  RandomState random = RandomState::of_each_rank;
  std::vector<CheckpointPart> parts{};  // put back last; one that the file does not have is said
  // Is told, on rank 0, one sentence about what was not put back or not used.
  Say say{};
};

// Saves all that training needs to go on into one file: parameters, buffers, the optimiser's state and
// options, what compression remembers on each rank, random generators and the position. Python reads it with
// torch.load(path, weights_only=True): {"model": ..., "optimizer": ..., "position": ...}, as state_dict() of
// each has it. Every rank calls it, between a step() and the next backward; rank 0 writes, and gets the state
// from the shards vector by vector, one bucket at a time. A file of that name is replaced once the new one is
// whole and on the disk.
//
// Where the file cannot be written: ConfigError on every rank, one sentence with the rank that writes, the
// file and the remedy; training can go on. ConfigError in a Join, where ranks without data could not follow.
// MismatchError on every rank where one makes another call.
void save_checkpoint(DataParallel& parallel, const std::string& path, const Position& position,
                     const CheckpointOptions& options = {});

// Puts back what save_checkpoint() saved, here or in Python (dear.save(), torch.save() of the same dict), and
// returns the position. Every rank calls it, between a step() and the next backward, best before the first;
// rank 0 reads. The number of ranks, the policy and the buckets may be others than those that saved: with the
// same number of ranks training goes on to the bit.
//
// ConfigError on every rank, and nothing has changed, for a file that is damaged, of another model (names the
// first tensor that differs) or of an optimiser of another class.
Position load_checkpoint(DataParallel& parallel, const std::string& path,
                         const CheckpointOptions& options = {});

}  // namespace dear
