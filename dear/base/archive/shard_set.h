#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/archive/value.h"
#include "dear/base/archive/zip_reader.h"

// Checkpoints of a shard a rank: a folder with a file of each, such as 5f3a9c01-00000-of-00004.pt, whose
// first word those that were saved together have in common. The pickle of a shard says which runs of elements
// of which tensors it has, {"pieces": {KEY: [[begin, tensor], ...]}}, and what its rank has for itself; that
// of rank 0's has kManifest, too, which is the pickle of a file with all of the checkpoint.
namespace dear::archive {

inline constexpr const char* kManifest = "manifest.pkl";

[[nodiscard]] std::string shard_name(const std::string& word, int rank, int ranks);
// The names of those in a folder that were saved together, by rank; the newest first. ConfigError where none
// is whole.
[[nodiscard]] std::vector<std::vector<std::string>> shards_in(const std::string& folder);
// Whether the folder lacks shards of every save in it, as where its process was killed in the first one.
[[nodiscard]] bool is_cut_short(const std::string& folder);
// Removes from the folder, once a shard and those saved with it are there, all that were saved before.
void remove_other_shards(const std::string& folder, const std::string& file);

// A ShardSet holds what one of `ranks` ranks has read of shards. Together the ranks read each record once,
// each as many bytes, and check its bytes. Where there are as many ranks as saved, each reads its own shard;
// small tensors are read by all.
class ShardSet {
 public:
  static constexpr std::int64_t kSmall = 4096;  // bytes
  using Memory = std::shared_ptr<std::byte[]>;
  struct Piece {
    std::int64_t begin, end;  // of the elements of its tensor, in the order in which they lie in memory
    TensorRecord record;
    std::size_t shard;
    std::int64_t bytes;
    Memory memory{};  // where this rank has read it
  };

  // Files by rank. ConfigError where one is damaged, or lacks elements.
  ShardSet(const std::vector<std::string>& paths, int rank, int ranks);

  [[nodiscard]] int saved_ranks() const { return static_cast<int>(of_ranks_.size()); }
  [[nodiscard]] const std::string& manifest() const { return manifest_; }
  // Ascending, without gaps; empty for a tensor that is not there.
  [[nodiscard]] const std::vector<Piece>& pieces_of(const std::string& key) const;
  void forget(const std::string& key) { pieces_.erase(key); }
  // Return the part of this rank's shard that is its own, and the tensors in it by their keys; where there
  // are as many ranks as saved.
  [[nodiscard]] const Value& own() const { return of_ranks_.at(rank_); }
  struct Block {
    Memory memory;
    std::int64_t bytes;
  };
  [[nodiscard]] std::map<std::string, Block> take_own_memory() { return std::move(own_memory_); }

 private:
  void add_pieces(const ZipReader& file, std::size_t shard);
  void read(const std::vector<ZipReader>& files, int ranks);

  std::size_t rank_;
  std::string manifest_;
  std::vector<Value> of_ranks_;
  std::map<std::string, std::vector<Piece>> pieces_;
  std::map<std::string, Block> own_memory_;
};

}  // namespace dear::archive
