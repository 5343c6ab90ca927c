#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dear/comm/group/group.h"
#include "dear/train/torch_backend/callbacks.h"
#include "dear/train/torch_backend/carrier.h"

namespace dear::torch_backend {

// A group as a backend of torch.distributed for memory of the host: "dear". Programs that know process groups
// alone (DistributedDataParallel, FSDP2, DTensor) get its collectives. All-reduces, reduces, reduce-scatters,
// all-gathers, broadcasts, all-to-alls of equal blocks and barriers are the group's, of the types and
// reductions that it has: sums, means (of floating-point types), maxima, minima, and bitwise or; moving takes
// any type. All else goes to `others`, a backend of the same ranks: sends and receives, gathers, scatters,
// products, all-reduces of sparse tensors,
// monitored barriers. ConfigError for other calls on tensors that are sparse or elsewhere.
//
// Works are asynchronous: the call returns at once, and what the tensors hold until the work is complete is
// undefined. Waiting throws a DistBackendError that names the rank at fault; the group has ended then. Every
// wait is bounded by the group's timeout, or a shorter one that Work::wait() is given. Every rank makes the
// same calls in the same order, with sizes of blocks given on all or on none. Safe for several threads.
class Backend : public ::c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<::c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  Backend(Group group, c10::intrusive_ptr<::c10d::Backend> others);
  ~Backend() override;
  // Waits for what is under way. Nothing else may be called then.
  void end();

  const std::string getBackendName() const override { return "dear"; }
  [[nodiscard]] const Group& group() const { return carrier_->group(); }
  // Operations that went to the group, and to `others`, so far.
  [[nodiscard]] std::int64_t carried() const { return carried_; }
  [[nodiscard]] std::int64_t handed_over() const { return handed_over_; }

  Work broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  Work allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const ::c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input,
                       const ::c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                           const ::c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const ::c10d::AllgatherOptions& options) override;
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const ::c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs,
               const ::c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const ::c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const ::c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const ::c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                     std::vector<std::int64_t>& input_sizes, const ::c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) override;
  Work barrier(const ::c10d::BarrierOptions& options) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;
  Work send(Tensors& tensors, int to, int tag) override;
  Work recv(Tensors& tensors, int from, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;

  // Calls in between, on this thread, become one work.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  Work endCoalescing() override;

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override {
    return static_cast<std::uint64_t>(carried_ + handed_over_);
  }
  void abort() override;
  void shutdown() override;

 private:
  struct Call;
  [[nodiscard]] int root_of(std::int64_t rank, const char* call) const;
  void require_one_list(std::size_t lists, const char* call) const;
  void require_as_many(std::size_t outputs, std::size_t inputs, const char* call) const;
  void require_dense(const at::Tensor& output, const char* call) const;
  [[nodiscard]] std::optional<Operation> operation_of(Collective collective, const at::Tensor& like,
                                                      const ::c10d::ReduceOp& reduction) const;
  Work carry(Call call);
  Work pass_to_current(Work work);
  Work collect(Work work);

  std::shared_ptr<Callbacks> callbacks_ = std::make_shared<Callbacks>();
  c10::intrusive_ptr<::c10d::Backend> others_;
  std::atomic<std::int64_t> carried_{0}, handed_over_{0};
  std::unique_ptr<Carrier> carrier_;
};

}  // namespace dear::torch_backend
