#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/vocabulary/say.h"
#include "dear/train/checkpoint/checkpoint.h"

namespace dear {

// How a checkpoint lies on the disk.
enum class CheckpointForm : std::uint8_t {
  one_file,             // rank 0's, which plain torch loads
  a_shard_of_each_rank  // a folder, which all ranks must see when training is resumed
};

struct CheckpointsOptions {
  std::string directory;
  int keep = 2;  // the newest checkpoints stay, at least 1
  CheckpointForm form = CheckpointForm::one_file;
  // save() copies what is to be saved, and a thread writes it while training goes on: rank 0 has room for all
  // of it, or, in shards, each rank for its shard.
  bool asynchronous = false;
  // In shards: each host has a folder of its own, on a disk or in memory, and each shard lies on the next
  // host, too, so that it is there when a host is lost. resume() copies to each host what it lacks.
  // Asynchronous ones are copied by the next save() or wait().
  bool mirrored = false;
  RandomState random = RandomState::of_each_rank;
  std::vector<CheckpointPart> parts{};  // see CheckpointOptions
  Say say{};                            // see CheckpointOptions
};

// A folder with a checkpoint for each step at which training was saved.
//
//   dear::Checkpoints checkpoints(dp, {.directory = "run1"});
//   std::int64_t step = checkpoints.resume().value_or(dear::Position{}).step;
//   while (step < steps) {
//     train(step);
//     if (++step % 1000 == 0) checkpoints.save({.step = step});
//   }
//   checkpoints.wait();
//
// Every rank makes one, which the DataParallel must outlive, and makes the same calls, between a step() and
// the next backward, and not in a Join (ConfigError). It serves one DataParallel: several have a folder each.
// A checkpoint appears whole or not at all, and the one before it stays until then, whenever a process is
// killed.
class Checkpoints {
 public:
  // ConfigError, on every rank, where the folder cannot be made or written into, or another run, or other
  // Checkpoints that live in this program, write into it.
  Checkpoints(DataParallel& parallel, CheckpointsOptions options);
  ~Checkpoints();  // waits for what is being written, without throwing
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Saves, and removes what is older than the newest `keep`. One save is under way at a time: the next waits
  // for it. ConfigError, on every rank, where this one cannot be written, or the one before could not; then
  // nothing is saved, and training can go on.
  void save(const Position& position);
  // Returns when what was saved is on the disk. Errors as of save().
  void wait();
  // Puts back the newest checkpoint that is whole, of either form, and returns its position; none where there
  // is none. One that is damaged is passed over, which is said: ConfigError where no other can be read,
  // unless its save was cut short. Errors as of load_checkpoint().
  std::optional<Position> resume();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dear
