#include "dear/train/engine/sharing.h"

#include <algorithm>
#include <cstring>

#include "dear/base/vocabulary/units.h"
#include "dear/train/model/tensor_broadcast.h"

namespace dear::train {
namespace {

// Shows the memory of bytes begin to end of tensors, one tensor's after another's, and where they lie in
// these bytes.
template <typename Act>
void for_bytes(const std::vector<torch::Tensor>& tensors, std::int64_t begin, std::int64_t end,
               const Act& act) {
  std::int64_t first = 0;
  for (const torch::Tensor& tensor : tensors) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    const std::int64_t from = std::max(begin, first), to = std::min(end, first + bytes);
    if (from < to)
      act(static_cast<std::byte*>(tensor.mutable_data_ptr()) + (from - first), from - begin,
          static_cast<std::size_t>(to - from));
    first += bytes;
  }
}

}  // namespace

torch::Tensor dense(const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.detach();
  return plain.is_non_overlapping_and_dense() ? plain : plain.contiguous();
}

torch::Tensor flat_view(const torch::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1}, dense.storage_offset());
}

void share(const Group& group, const std::vector<torch::Tensor>& tensors, EngineState::Holder holder) {
  if (holder == EngineState::Holder::rank_0) model::TensorBroadcast(group, tensors).run();
  if (holder == EngineState::Holder::spread) model::TensorBroadcast(group, tensors).merge();
}

void scatter(const Group& group, const std::vector<std::vector<torch::Tensor>>& of_ranks,
             const std::vector<torch::Tensor>& mine, const std::vector<std::int64_t>& bytes) {
  const std::int64_t longest = *std::max_element(bytes.begin(), bytes.end());
  if (longest == 0) return;
  const std::int64_t block =
      std::max(std::min(longest, 16 * kMiB / group.size()) / 64 * 64, std::int64_t{64});
  const std::int64_t count = block * group.size();
  const Buffer staging = group.allocate(count);
  for (std::int64_t begin = 0; begin < longest; begin += block) {
    std::memset(staging.data(), 0, static_cast<std::size_t>(count));
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
      for_bytes(of_ranks[rank], begin, begin + block,
                [&](const std::byte* memory, std::int64_t at, std::size_t some) {
                  std::memcpy(staging.data() + block * static_cast<std::int64_t>(rank) + at, memory, some);
                });
    // The others have nothing but zeros in any block.
    group
        .reduce_scatter({.buffer = staging, .offset_bytes = 0, .count = count, .dtype = DType::u8},
                        Reduction::bitwise_or)
        .wait();
    for_bytes(mine, begin, begin + block, [&](std::byte* memory, std::int64_t at, std::size_t some) {
      std::memcpy(memory, staging.data() + block * group.rank() + at, some);
    });
  }
}

}  // namespace dear::train
