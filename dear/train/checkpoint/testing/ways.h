#pragma once

#include <array>
#include <ostream>

#include "dear/train/checkpoint/checkpoints.h"

namespace dear::checkpoint::testing {

// A way of saving.
struct Way {
  const char* name;
  CheckpointForm form;
  bool asynchronous;
};
inline void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

inline constexpr std::array<Way, 4> kWays = {{{"OneFile", CheckpointForm::one_file, false},
                                              {"OneFileLater", CheckpointForm::one_file, true},
                                              {"Shards", CheckpointForm::a_shard_of_each_rank, false},
                                              {"ShardsLater", CheckpointForm::a_shard_of_each_rank, true}}};

}  // namespace dear::checkpoint::testing
