#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "dear/comm/buckets/bucket_wire.h"
#include "dear/comm/buckets/layout.h"
#include "dear/comm/group/group.h"
#include "dear/train/optim/sharded_optimizer.h"

namespace dear::train {

// Copies says how many copies of a bucket's parameters ranks have in buckets: each rank its own, one for all
// (see [Note: one copy]), or none, so that parameters stay where they are and the bucket has gradients alone.
enum class Copies : std::uint8_t { one_per_rank, one_for_all, none };

// One bucket in memory: parameters and gradients, each one flat buffer of the group, or of a device. The
// model's parameters and their gradients become views into them, so nothing is copied on the way to the wire.
// Without parameters (Copies::none), holds_parameter() is fits(), and restore_parameter() does nothing.
class BucketStorage {
 public:
  // `own`: by part of the bucket that is updated at a time, what this rank updates of it. Allocates on the
  // group: all ranks together, in the same order.
  BucketStorage(const Group& group, buckets::BucketLayout layout, std::vector<Range> own,
                Copies copies = Copies::one_per_rank);
  // In memory of the device, which is allocated on the current stream.
  BucketStorage(const at::Device& device, buckets::BucketLayout layout, std::vector<Range> own,
                Copies copies = Copies::one_per_rank);

  // Moves the parameter, and its gradient where it has one, into place `index` of the layout. The tensor
  // keeps its identity and shape, and has these strides from then on.
  void adopt(std::size_t index, torch::Tensor& parameter, std::vector<std::int64_t> strides);

  // Does the parameter (its gradient) still lie where adopt() put it? Not after a load, a set_data() or a
  // zero_grad(set_to_none). restore_*() copies the present values in, in the strides of adopt(), and makes it
  // lie there again; a missing gradient counts as zero.
  [[nodiscard]] bool holds_parameter(std::size_t index, const torch::Tensor& parameter) const;
  [[nodiscard]] bool holds_gradient(std::size_t index, const torch::Tensor& parameter) const;
  // Whether restore_parameter() can: of the same shape, type and device.
  [[nodiscard]] bool fits(std::size_t index, const torch::Tensor& parameter) const;
  void restore_parameter(std::size_t index, torch::Tensor& parameter);
  void restore_gradient(std::size_t index, torch::Tensor& parameter);
  // Where all ranks share one copy, restore_parameter() and adopt() write nothing: a peer may be reading it.
  // What they found waits here, and is written by this, as far as this rank updates it: before an update of
  // the part, while no rank reads it. Not at the same time as restore_parameter().
  void write_incoming(std::size_t part);

  // Returns what of the part this rank's optimiser updates, cut as it wants each parameter group.
  [[nodiscard]] std::vector<optim::ShardedOptimizer::FlatRun> runs(
      std::size_t part, const std::vector<FlatVectors>& vectors) const;
  [[nodiscard]] const Range& own(std::size_t part) const { return own_[part]; }
  void zero_gradients(const Range& range);
  [[nodiscard]] std::int64_t incoming_bytes() const;  // that wait for write_incoming()
  // A tensor of the shape and strides of the parameter at `index`, on its elements of a vector over the
  // whole bucket.
  [[nodiscard]] torch::Tensor tensor_in(const torch::Tensor& flat, std::size_t index) const;
  // [Note: unused parameters]: unless the program wrote into its gradient. Not on a device, whose memory the
  // host does not read: there the gradient is zero.
  void mark_unused(std::size_t index);

  [[nodiscard]] const buckets::BucketLayout& layout() const { return layout_; }
  [[nodiscard]] buckets::BucketWire::Flat flat() const;
  [[nodiscard]] const torch::Tensor& parameters() const { return parameters_; }
  [[nodiscard]] const torch::Tensor& gradients() const { return gradients_; }
  // Identities of the two memories, as an operator's inputs show them.
  [[nodiscard]] const void* parameter_storage() const;
  [[nodiscard]] const void* gradient_storage() const;

 private:
  [[nodiscard]] bool lies_in(const void* buffer, std::size_t index, const torch::Tensor& tensor) const;
  [[nodiscard]] std::size_t index_of(TensorId tensor) const;
  [[nodiscard]] std::vector<optim::ShardedOptimizer::Stretch> stretches_within(const Range& range) const;

  struct Incoming {
    std::int64_t offset;  // in the bucket, in elements
    torch::Tensor values;
  };

  struct Form {
    std::vector<std::int64_t> sizes, strides;
  };

  buckets::BucketLayout layout_;
  std::vector<Form> forms_;  // by index
  Copies copies_;
  std::vector<Range> own_;                       // by part
  std::vector<std::vector<Incoming>> incoming_;  // by part
  Buffer parameter_buffer_, gradient_buffer_;
  torch::Tensor parameters_, gradients_;
  const void *parameter_data_ = nullptr, *gradient_data_ = nullptr;
};

}  // namespace dear::train
