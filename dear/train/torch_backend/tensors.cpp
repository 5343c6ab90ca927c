#include "dear/train/torch_backend/tensors.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "dear/base/vocabulary/error.h"

namespace dear::torch_backend {

using ::c10d::ReduceOp;

std::optional<Reduction> reduction_of(const ReduceOp& op) {
  static constexpr std::array<std::pair<ReduceOp::RedOpType, Reduction>, 5> kReductions{
      {{ReduceOp::SUM, Reduction::sum},
       {ReduceOp::AVG, Reduction::average},
       {ReduceOp::MAX, Reduction::max},
       {ReduceOp::MIN, Reduction::min},
       {ReduceOp::BOR, Reduction::bitwise_or}}};
  for (const auto& [theirs, ours] : kReductions)
    if (theirs == op.op_) return ours;
  return std::nullopt;
}

bool is_on_host(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided;
}

void require_on_host(const at::Tensor& tensor, int rank, const char* call) {
  if (!is_on_host(tensor))
    throw ConfigError(
        fmt::format("rank {}: {}: the backend dear carries dense tensors in memory of the host, and this one "
                    "is {}: give such a tensor, or a process group of another backend",
                    rank, call, tensor.defined() ? tensor.toString() : "undefined"));
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, int rank, const char* call) {
  if (tensors.size() != 1)
    throw ConfigError(fmt::format("rank {}: {}: there are {} tensors: give one", rank, call, tensors.size()));
  require_on_host(tensors.front(), rank, call);
  return tensors.front();
}

void require_alike(const std::vector<at::Tensor>& blocks, const at::Tensor& like, int ranks, int rank,
                   const char* call) {
  if (blocks.size() != static_cast<std::size_t>(ranks))
    throw ConfigError(fmt::format("rank {}: {}: there are {} tensors for {} ranks: give one for each", rank,
                                  call, blocks.size(), ranks));
  for (const at::Tensor& block : blocks) {
    require_on_host(block, rank, call);
    if (block.numel() != like.numel() || block.scalar_type() != like.scalar_type())
      throw ConfigError(fmt::format(
          "rank {}: {}: tensors have {} and {} elements, or different types: give tensors that are alike",
          rank, call, like.numel(), block.numel()));
  }
}

std::vector<at::Tensor> cut(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes, int ranks,
                            int rank) {
  ::c10d::checkSplitSizes(sizes, tensor, ranks);
  std::vector<at::Tensor> blocks;
  std::int64_t begin = 0;
  for (std::size_t block = 0; block < static_cast<std::size_t>(ranks); ++block) {
    const std::int64_t rows = sizes.empty() ? tensor.size(0) / ranks : sizes[block];
    if (rows < 0)
      throw ConfigError(
          fmt::format("rank {}: all-to-all: a split of {} rows cannot be: give 0 or more", rank, rows));
    blocks.push_back(tensor.narrow(0, begin, rows));
    begin += rows;
  }
  return blocks;
}

std::vector<std::int64_t> bytes_of(const std::vector<at::Tensor>& blocks) {
  std::vector<std::int64_t> bytes;
  for (const at::Tensor& block : blocks) bytes.push_back(static_cast<std::int64_t>(block.nbytes()));
  return bytes;
}

}  // namespace dear::torch_backend
