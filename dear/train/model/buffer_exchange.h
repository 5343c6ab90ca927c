#pragma once

#include <optional>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/train/model/buffer_sync.h"
#include "dear/train/model/tensor_broadcast.h"

namespace dear::model {

// Makes a model's buffers the same on all ranks, as BufferSync says. A mean is that of Reduction::average in
// the tensor's own type.
class BufferExchange {
 public:
  // All ranks together.
  BufferExchange(const Group& group, std::vector<torch::Tensor> buffers, BufferSync how);

  // Takes these in place of its own, with the same shapes and dtypes on every rank. False where they are
  // others; then it is of no use any more.
  bool take(std::vector<torch::Tensor> buffers);
  // Waits for it. On the group that was given, so between the collectives of others. `root` stands for rank
  // 0.
  void at_synchronize(int root);
  // At any time: on a group of its own.
  void at_forward(int root);
  // The bytes of the memory through which they travel.
  [[nodiscard]] std::int64_t bytes() const {
    return averaged_->bytes() + others_->bytes() + (forward_ ? forward_->bytes() : 0);
  }

 private:
  Group group_;
  const BufferSync how_;
  std::optional<TensorBroadcast> averaged_, others_, forward_;
};

}  // namespace dear::model
