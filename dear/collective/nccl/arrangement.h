#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dear/base/dtype.h"

// What of the NCCL backend needs neither CUDA nor NCCL.
namespace dear::collective {

// The elements of every shard where shard_of() makes them all alike, as NCCL's reduce-scatter and all-gather
// have them. Otherwise each shard is a reduce or broadcast of its own.
std::optional<std::int64_t> equal_shards(std::int64_t count, DType dtype, int ranks);

// What NCCL says of a failure, in its own classes.
enum class NcclFault : std::uint8_t { cuda, system, internal, argument, usage, remote, other };
// What a user can do: the end of a sentence.
std::string remedy_for(NcclFault fault);

}  // namespace dear::collective
