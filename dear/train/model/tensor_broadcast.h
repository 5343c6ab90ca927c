#pragma once

#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"

namespace dear::model {

// Shapes, dtypes and devices of tensors, as they are now: those of one tensor may change.
struct Outline {
  std::vector<std::int64_t> sizes;
  at::ScalarType type;
  at::Device device;
  friend bool operator==(const Outline&, const Outline&) = default;
};
[[nodiscard]] std::vector<Outline> outlines_of(const std::vector<torch::Tensor>& tensors);

// Copies tensors of one rank to all ranks, again and again, through one staging buffer.
class TensorBroadcast {
 public:
  // Takes the same tensors, in shape and dtype, on every rank. Allocates: every rank must make it together.
  TensorBroadcast(Group group, std::vector<torch::Tensor> tensors);
  void run(int root = 0);  // waits for it
  // Makes each tensor the bitwise or of every rank's: of ranks that have some elements each, and zeros in
  // place of the others'. Waits for it.
  void merge() { run(kAll); }
  // Takes these in place of its own; false, and nothing done, where shapes or dtypes are others.
  bool take(const std::vector<torch::Tensor>& tensors);
  [[nodiscard]] std::int64_t bytes() const { return staging_.bytes(); }

 private:
  static constexpr int kAll = -1;  // in place of a root
  void send(std::size_t first, std::size_t last, int root);
  [[nodiscard]] torch::Tensor staged(const torch::Tensor& tensor, std::int64_t offset) const;

  Group group_;
  std::vector<torch::Tensor> tensors_;
  std::vector<Outline> outlines_;
  Buffer staging_;
};

}  // namespace dear::model
