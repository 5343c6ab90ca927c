#pragma once

#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"

namespace dear::model {

// Makes tensors the same on all ranks, again and again, through one staging buffer.
class TensorBroadcast {
 public:
  // Takes the same tensors, in shape and dtype, on every rank. Allocates: every rank must make it together.
  TensorBroadcast(Group group, std::vector<torch::Tensor> tensors);
  // Each of these waits for it. Copies those of one rank to all.
  void run(int root = 0);
  // Makes each tensor the bitwise or of every rank's: of ranks that have some elements each, and zeros in
  // place of the others'.
  void merge() { run(kAll); }
  // Makes each tensor the mean over ranks (Reduction::average), of types that groups average.
  void average() { run(kMean); }
  // Takes these in place of its own; false, and nothing done, where shapes or dtypes are others.
  bool take(std::vector<torch::Tensor> tensors);
  [[nodiscard]] std::int64_t bytes() const { return staging_.bytes(); }

 private:
  // Shape, dtype and device of a tensor, as they were when it was taken: they may change.
  struct Outline {
    std::vector<std::int64_t> sizes;
    at::ScalarType type;
    at::Device device;
    friend bool operator==(const Outline&, const Outline&) = default;
  };
  static constexpr int kAll = -1, kMean = -2;  // in place of a root
  void send(std::size_t first, std::size_t last, int root);
  [[nodiscard]] std::vector<Outline> keep(std::vector<torch::Tensor>& tensors) const;
  [[nodiscard]] torch::Tensor staged(const torch::Tensor& tensor, std::int64_t offset) const;

  Group group_;
  std::vector<torch::Tensor> tensors_;  // with elements, on several ranks
  std::vector<Outline> outlines_;
  Buffer staging_;
};

}  // namespace dear::model
