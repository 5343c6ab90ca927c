#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/train/torch_backend/callbacks.h"
#include "dear/train/torch_backend/carrier.h"
#include "dear/train/torch_backend/fallback.h"

namespace dear::torch_backend {

// A group as a backend of torch.distributed for memory of the host: "dear". Programs that know process groups
// alone (DistributedDataParallel, FSDP2, DTensor) get its collectives. All-reduces, reduces, reduce-scatters,
// all-gathers, broadcasts, all-to-alls of equal blocks and barriers are the group's, of the types and
// reductions that it has: sums, means (of int32 and int64 towards zero), maxima, minima, and bitwise or;
// moving takes any type. All else goes to `others`, a backend of the same ranks: sends and receives, gathers,
// scatters, products, all-reduces of sparse tensors, monitored barriers. ConfigError for other calls on
// tensors that are sparse or elsewhere.
//
// Works are asynchronous: the call returns at once, and what the tensors hold until the work is complete is
// undefined. Waiting throws a DistBackendError that names the rank at fault; the group has ended then. Every
// wait is bounded by the group's timeout, or a shorter one that Work::wait() is given. Every rank makes the
// same calls in the same order, with sizes of blocks given on all or on none. Safe for several threads.
class Backend : public FallbackBackend {
 public:
  // `messages`: see FallbackBackend.
  Backend(Group group, c10::intrusive_ptr<::c10d::Backend> others,
          std::unique_ptr<ModelledMessages> messages = nullptr);
  // Waits for what is under way. Nothing else may be called then.
  void end();

  const std::string getBackendName() const override { return "dear"; }
  [[nodiscard]] const Group& group() const { return carrier_->group(); }
  using FallbackBackend::messages;
  // Operations that went to the group so far.
  [[nodiscard]] std::int64_t carried() const { return carried_; }

  Work broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
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
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const ::c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const ::c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const ::c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                     std::vector<std::int64_t>& input_sizes, const ::c10d::AllToAllOptions& options) override;
  Work barrier(const ::c10d::BarrierOptions& options) override;

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override {
    return static_cast<std::uint64_t>(carried_ + handed_over());
  }
  void abort() override;

 private:
  struct Call;
  [[nodiscard]] int root_of(std::int64_t rank, const char* call) const;
  void require_lists(std::size_t given, std::size_t wanted, const char* call) const;
  void require_blocks(const at::Tensor& all, const at::Tensor& one, const char* call) const;
  [[nodiscard]] std::optional<Operation> operation_of(Collective collective, const at::Tensor& like,
                                                      const ::c10d::ReduceOp& reduction = {}) const;
  [[nodiscard]] Tensors blocks_of(const at::Tensor& flat) const;
  void write_blocks(Call& call, const at::Tensor& output) const;
  Work carry(Call call);
  template <typename Part>
  Work joined(std::size_t count, const Part& part);

  std::shared_ptr<Callbacks> callbacks_ = std::make_shared<Callbacks>();
  std::atomic<std::int64_t> carried_{0};
  std::unique_ptr<Carrier> carrier_;
};

}  // namespace dear::torch_backend
