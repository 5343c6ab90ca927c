#include "tests/fuzz/target.h"
#include "tests/fuzz/targets/memory_file.h"

#include "dear/base/archive/shard_set.h"

namespace dear::fuzz {

// The one shard of a checkpoint in shards.
void shard(std::string_view bytes) {
  const std::string path = memory_file(bytes);
  archive::ShardSet set({path}, 0, 1);
  static_cast<void>(set.pieces_of("weight"));
  static_cast<void>(set.own());
  static_cast<void>(set.take_own_memory());
  archive::ShardSet half({path}, 0, 2);
  static_cast<void>(half.pieces_of("weight"));
}

}  // namespace dear::fuzz
