#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "dear/base/vocabulary/reduction.h"

// Tensors and reductions of torch.distributed in the words of groups; `rank` and `call` are for messages.
namespace dear::torch_backend {

// None for a reduction that a group does not have.
std::optional<Reduction> reduction_of(const ::c10d::ReduceOp& op);

bool is_on_host(const at::Tensor& tensor);  // and dense
// ConfigError for any other.
void require_on_host(const at::Tensor& tensor, int rank, const char* call);
// The one tensor of a rank; ConfigError for another number.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, int rank, const char* call);
// ConfigError unless there is one for each rank, as large as `like` and of its type.
void require_alike(const std::vector<at::Tensor>& blocks, const at::Tensor& like, int ranks, int rank,
                   const char* call);

// The parts of a contiguous tensor along dimension 0, so many rows for each rank, or equally many where there
// are no sizes. The errors of torch for sizes that do not fit; ConfigError for a negative one.
std::vector<at::Tensor> cut(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes, int ranks,
                            int rank);
std::vector<std::int64_t> bytes_of(const std::vector<at::Tensor>& blocks);

}  // namespace dear::torch_backend
