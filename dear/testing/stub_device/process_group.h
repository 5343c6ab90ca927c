#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dear/testing/stub_device/meeting.h"

namespace dear::stub_device {

// Collectives on tensors of the stub device, as ProcessGroupNCCL has them: the host returns when they are
// enqueued.
// - asyncOp = false: on the current stream of the device. There is no work: the call returns null.
// - asyncOp = true: on a stream of the group's own, after what the current stream had to do at the call.
//   Work::wait() makes the current stream wait, and the host only for a barrier. Until then the work keeps
//   the tensors.
// Between startCoalescing() and endCoalescing() of one thread calls are only noted; the end enqueues all.
// Ranks that make different calls end the device with an error that says which.
class StubBackend final : public ::c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<::c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  StubBackend(std::shared_ptr<Exchange> exchange, int rank)
      : Backend(rank, exchange->ranks()), exchange_(std::move(exchange)) {}

  const std::string getBackendName() const override { return "stub"; }
  Work broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const ::c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input,
                       const ::c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const ::c10d::AllgatherOptions& options) override;
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const ::c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const ::c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const ::c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                     std::vector<std::int64_t>& input_sizes, const ::c10d::AllToAllOptions& options) override;
  Work barrier(const ::c10d::BarrierOptions& options) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  Work endCoalescing() override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return calls_; }

 private:
  struct Call {
    Part part;
    Tensors tensors, outputs;
    ::c10d::OpType type;
  };
  Work make(std::vector<Call> calls, bool async);
  c10::Stream own_stream(c10::Device device);

  std::shared_ptr<Exchange> exchange_;
  std::mutex mutex_;
  std::vector<std::pair<c10::Device, c10::Stream>> own_streams_;
  bool coalescing_ = false, coalesced_async_ = false;
  std::vector<Call> noted_;
  std::uint64_t calls_ = 0;
};

// The process groups of so many ranks that are threads of this process, by rank. Each carries tensors of the
// stub device.
//
//   const auto groups = stub_device::make_process_groups(2);
//   // on the thread of each rank:
//   const c10::DeviceGuard guard(stub_device::device(rank));
//   groups[rank]->getBackend(c10::DeviceType::PrivateUse1)->_reduce_scatter_base(own, all, {.asyncOp =
//   false});
[[nodiscard]] std::vector<c10::intrusive_ptr<::c10d::ProcessGroup>> make_process_groups(int ranks);

}  // namespace dear::stub_device
