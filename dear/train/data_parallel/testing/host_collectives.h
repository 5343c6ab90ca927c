#pragma once

#include <cstring>
#include <string>
#include <utility>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/comm/process_group/torch_types.h"
#include "dear/train/streams/stream_collectives.h"

namespace dear::train::testing {

// Collectives on tensors of the CPU, which has no streams, over a group: what training on streams computes
// can be tested without a device.
class HostCollectives : public StreamCollectives {
 public:
  explicit HostCollectives(const Group& group) : group_(group.duplicate()) {}
  [[nodiscard]] int rank() const override { return group_.rank(); }
  [[nodiscard]] int size() const override { return group_.size(); }
  [[nodiscard]] std::string description() const override { return "host"; }
  void reduce_scatter(at::Tensor& vector) override {
    carry(vector, Collective::reduce_scatter, Reduction::sum);
  }
  void all_gather(at::Tensor& vector) override { carry(vector, Collective::all_gather, Reduction::sum); }
  void all_reduce(at::Tensor& vector, Joined joined) override {
    carry(vector, Collective::all_reduce, joined == Joined::sum ? Reduction::sum : Reduction::max);
  }

 private:
  void carry(at::Tensor& vector, Collective collective, Reduction reduction) {
    const auto bytes = static_cast<std::int64_t>(vector.nbytes());
    if (buffer_.bytes() < bytes) buffer_ = group_.allocate(bytes);
    std::memcpy(buffer_.data(), vector.const_data_ptr(), vector.nbytes());
    group_.perform({.collective = collective,
                    .view = {.buffer = buffer_,
                             .count = vector.numel(),
                             .dtype = *process_group::dtype_of(vector.scalar_type())},
                    .reduction = reduction});
    std::memcpy(vector.mutable_data_ptr(), buffer_.data(), vector.nbytes());
  }

  Group group_;
  Buffer buffer_;
};

}  // namespace dear::train::testing
