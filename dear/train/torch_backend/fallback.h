#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dear/train/torch_backend/modelled_messages.h"

namespace dear::torch_backend {

// Gives what a group does not carry to another backend of the same ranks, and makes the works of calls
// between startCoalescing() and endCoalescing(), on one thread, one work. With `messages`, over the same
// other backend, sends and receives take the time of modelled links; the rest that it hands over takes none.
class FallbackBackend : public ::c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<::c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  // Operations that went to the other backend so far.
  [[nodiscard]] std::int64_t handed_over() const { return handed_over_; }

  Work allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const ::c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs,
               const ::c10d::ScatterOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;
  Work send(Tensors& tensors, int to, int tag) override;
  Work recv(Tensors& tensors, int from, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  Work endCoalescing() override;
  void shutdown() override { others_->shutdown(); }

 protected:
  FallbackBackend(int rank, int size, c10::intrusive_ptr<::c10d::Backend> others,
                  std::unique_ptr<ModelledMessages> messages);
  [[nodiscard]] const ModelledMessages* messages() const { return messages_.get(); }  // null without
  // An operation that throws ends the coalescing: PyTorch's manager does not call endCoalescing() then.
  class EndsCoalescingWhenThrown {
   public:
    EndsCoalescingWhenThrown() = default;
    ~EndsCoalescingWhenThrown();
    EndsCoalescingWhenThrown(const EndsCoalescingWhenThrown&) = delete;
    EndsCoalescingWhenThrown& operator=(const EndsCoalescingWhenThrown&) = delete;

   private:
    const int before_ = std::uncaught_exceptions();
  };
  [[nodiscard]] bool coalesces() const;  // on this thread
  // Returns the work, which is one of the coalescing under way.
  Work collect(Work work);
  // Returns the work of call(the other backend), likewise.
  template <typename Call>
  Work hand_over(const Call& call) {
    const EndsCoalescingWhenThrown ends;
    ++handed_over_;
    return collect(call(*others_));
  }

 private:
  c10::intrusive_ptr<::c10d::Backend> others_;
  const std::unique_ptr<ModelledMessages> messages_;
  std::atomic<std::int64_t> handed_over_{0};
};

}  // namespace dear::torch_backend
