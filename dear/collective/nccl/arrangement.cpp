#include "dear/collective/nccl/arrangement.h"

#include "dear/collective/shard.h"

namespace dear::collective {

std::optional<std::int64_t> equal_shards(std::int64_t count, DType dtype, int ranks) {
  const std::int64_t first = shard_of(count, dtype, ranks, 0).count();
  if (first * ranks != count) return std::nullopt;
  return first;
}

std::string remedy_for(NcclFault fault) {
  switch (fault) {
    case NcclFault::cuda:
      return "see whether the GPU is healthy and has memory left (nvidia-smi)";
    case NcclFault::system:
      return "set NCCL_DEBUG=INFO to see which call failed, and NCCL_SOCKET_IFNAME if a host has several "
             "networks";
    case NcclFault::argument:
    case NcclFault::usage:
      return "set NCCL_DEBUG=WARN to see what it refuses; two ranks on one GPU are among it";
    case NcclFault::remote:
      return "a peer ended or its connection broke: see what that rank printed";
    case NcclFault::internal:
    case NcclFault::other:
      break;
  }
  return "set NCCL_DEBUG=WARN to see more";
}

}  // namespace dear::collective
