#include "dear/train/torch_backend/backend.h"

#include <utility>

#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/process_group/torch_types.h"
#include "dear/train/torch_backend/tensors.h"
#include "dear/train/torch_backend/works.h"

namespace dear::torch_backend {

using ::c10d::OpType;

// An operation with the tensors that it is about.
struct Backend::Call {
  OpType type;
  Operation operation;
  Tensors inputs;    // by block
  Tensors outputs;   // by block; may be the inputs
  Tensors result{};  // of the work; empty: the outputs
  bool asynchronous = true;
  std::vector<std::pair<at::Tensor, at::Tensor>> to_copy{};  // to, from: at the end
};

Backend::Backend(Group group, c10::intrusive_ptr<::c10d::Backend> others,
                 std::unique_ptr<ModelledMessages> messages)
    : FallbackBackend(group.rank(), group.size(), std::move(others), std::move(messages)),
      carrier_(std::make_unique<Carrier>(std::move(group))) {}

void Backend::end() {
  carrier_.reset();
  callbacks_.reset();
}

// None for what the group does not have: a type, or a reduction.
std::optional<Operation> Backend::operation_of(Collective collective, const at::Tensor& like,
                                               const ::c10d::ReduceOp& reduction) const {
  Operation operation{.collective = collective, .count = like.numel()};
  if (!reduces(collective)) {  // bytes
    operation.count *= like.element_size();
    return operation;
  }
  const std::optional<DType> dtype = process_group::dtype_of(like.scalar_type());
  const std::optional<Reduction> how = reduction_of(reduction);
  if (!dtype || !how || !obstacle_to(*dtype, *how).empty()) return std::nullopt;
  operation.dtype = *dtype;
  operation.reduction = *how;
  return operation;
}

int Backend::root_of(std::int64_t rank, const char* call) const {
  if (rank < 0 || rank >= size_)
    throw ConfigError(fmt::format("rank {}: {}: there is no rank {} among {}: name a root from 0 to {}",
                                  rank_, call, rank, size_, size_ - 1));
  return static_cast<int>(rank);
}

void Backend::require_lists(std::size_t given, std::size_t wanted, const char* call) const {
  if (given != wanted)
    throw ConfigError(
        fmt::format("rank {}: {}: {} tensors or lists of tensors are given where there must be {}", rank_,
                    call, given, wanted));
}

// `all` has a block for each rank, `one` is a block.
void Backend::require_blocks(const at::Tensor& all, const at::Tensor& one, const char* call) const {
  require_on_host(all, rank_, call);
  require_on_host(one, rank_, call);
  if (all.numel() != one.numel() * size_ || all.scalar_type() != one.scalar_type())
    throw ConfigError(
        fmt::format("rank {}: {}: the larger tensor has {} elements, and the smaller one {} for each of {} "
                    "ranks: make one as large as the other is on all ranks together, and of its type",
                    rank_, call, all.numel(), one.numel(), size_));
}

// A block for each rank, of a tensor without gaps.
Backend::Tensors Backend::blocks_of(const at::Tensor& flat) const {
  if (flat.numel() == 0) return Tensors(static_cast<std::size_t>(size_), flat);
  return flat.view(-1).chunk(size_);
}

// The blocks are written where the output is, or beside it where it has gaps.
void Backend::write_blocks(Call& call, const at::Tensor& output) const {
  const at::Tensor whole =
      output.is_contiguous() ? output : at::empty_like(output, at::MemoryFormat::Contiguous);
  call.outputs = blocks_of(whole);
  if (!whole.is_same(output)) call.to_copy.emplace_back(output, whole);
}

template <typename Part>
Backend::Work Backend::joined(std::size_t count, const Part& part) {
  std::vector<Work> parts;
  for (std::size_t i = 0; i < count; ++i) parts.push_back(part(i));
  return c10::make_intrusive<JoinedWork>(rank_, std::move(parts));
}

Backend::Work Backend::carry(Call call) {
  ++carried_;
  const at::NoGradGuard no_grad;
  auto work = c10::make_intrusive<CarriedWork>(rank_, call.type,
                                               call.result.empty() ? call.outputs : call.result, callbacks_);
  Tensors inputs, outputs;
  std::vector<std::pair<at::Tensor, at::Tensor>> to_copy = std::move(call.to_copy);
  for (const at::Tensor& input : call.inputs) inputs.push_back(input.contiguous());
  for (std::size_t block = 0; block < call.outputs.size(); ++block) {
    const at::Tensor& output = call.outputs[block];
    if (output.is_contiguous()) {
      outputs.push_back(output);
      continue;
    }
    // An input of the same memory has been copied already.
    outputs.push_back(at::empty_like(output, at::MemoryFormat::Contiguous));
    to_copy.emplace_back(output, outputs.back());
  }
  for (const at::Tensor& input : inputs)
    call.operation.from.push_back(static_cast<const std::byte*>(input.const_data_ptr()));
  for (const at::Tensor& output : outputs)
    call.operation.to.push_back(static_cast<std::byte*>(output.mutable_data_ptr()));
  const bool receives =
      call.operation.collective == Collective::reduce || call.operation.collective == Collective::broadcast
          ? (call.operation.root == rank_) == (call.operation.collective == Collective::reduce)
          : true;
  if (!receives) to_copy.clear();
  call.operation.done = [work, inputs, outputs, to_copy](const std::exception_ptr& error) {
    std::exception_ptr ended = error;
    try {
      for (const auto& [to, from] : to_copy) {
        const at::NoGradGuard no_grad_here;
        const c10::InferenceMode inference(to.is_inference());  // such tensors are written nowhere else
        if (!ended) to.copy_(from);
      }
    } catch (...) {
      ended = std::current_exception();
    }
    work->ended(ended);
  };
  if (call.asynchronous || coalesces()) {
    carrier_->post(std::move(call.operation));
  } else {
    carrier_->run(std::move(call.operation));
  }
  return collect(work);
}

Backend::Work Backend::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) {
  const EndsCoalescingWhenThrown ends;
  Operation operation = *operation_of(Collective::broadcast, only(tensors, rank_, "broadcast"));
  operation.root = root_of(options.rootRank, "broadcast");
  return carry({.type = OpType::BROADCAST,
                .operation = std::move(operation),
                .inputs = tensors,
                .outputs = tensors,
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  const EndsCoalescingWhenThrown ends;
  std::optional<Operation> operation;
  if (tensors.size() == 1 && is_on_host(tensors.front()))
    operation = operation_of(Collective::all_reduce, tensors.front(), options.reduceOp);
  if (!operation) return hand_over([&](auto& others) { return others.allreduce(tensors, options); });
  return carry({.type = OpType::ALLREDUCE,
                .operation = std::move(*operation),
                .inputs = tensors,
                .outputs = tensors,
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::allreduce_coalesced(Tensors& tensors,
                                           const ::c10d::AllreduceCoalescedOptions& options) {
  return joined(tensors.size(), [&](std::size_t i) {
    Tensors one{tensors[i]};
    return allreduce(one, options);
  });
}

Backend::Work Backend::reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) {
  const EndsCoalescingWhenThrown ends;
  std::optional<Operation> operation =
      operation_of(Collective::reduce, only(tensors, rank_, "reduce"), options.reduceOp);
  if (!operation) return hand_over([&](auto& others) { return others.reduce(tensors, options); });
  operation->root = root_of(options.rootRank, "reduce");
  return carry({.type = OpType::REDUCE,
                .operation = std::move(*operation),
                .inputs = tensors,
                .outputs = tensors,
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const ::c10d::AllgatherOptions& options) {
  const EndsCoalescingWhenThrown ends;
  const at::Tensor& input = only(inputs, rank_, "all-gather");
  require_lists(outputs.size(), 1, "all-gather");
  require_alike(outputs.front(), input, size_, rank_, "all-gather");
  return carry({.type = OpType::ALLGATHER,
                .operation = *operation_of(Collective::all_gather, input),
                .inputs = inputs,
                .outputs = outputs.front(),
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                       const ::c10d::AllgatherOptions& options) {
  const EndsCoalescingWhenThrown ends;
  require_blocks(output, input, "all-gather");
  Call call{.type = OpType::_ALLGATHER_BASE,
            .operation = *operation_of(Collective::all_gather, input),
            .inputs = {input},
            .outputs = {},
            .result = {output},
            .asynchronous = options.asyncOp};
  write_blocks(call, output);
  return carry(std::move(call));
}

// outputs[r][i] is what rank r has for inputs[i].
Backend::Work Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const ::c10d::AllgatherOptions& options) {
  const EndsCoalescingWhenThrown ends;
  require_lists(outputs.size(), static_cast<std::size_t>(size_), "all-gather");
  for (const Tensors& list : outputs) require_lists(list.size(), inputs.size(), "all-gather");
  return joined(inputs.size(), [&](std::size_t i) {
    std::vector<Tensors> to(1);
    for (const Tensors& of_rank : outputs) to.front().push_back(of_rank[i]);
    Tensors from{inputs[i]};
    return allgather(to, from, options);
  });
}

Backend::Work Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const ::c10d::AllgatherOptions& options) {
  const EndsCoalescingWhenThrown ends;
  require_lists(outputs.size(), inputs.size(), "all-gather");
  return joined(inputs.size(),
                [&](std::size_t i) { return _allgather_base(outputs[i], inputs[i], options); });
}

Backend::Work Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                      const ::c10d::ReduceScatterOptions& options) {
  const EndsCoalescingWhenThrown ends;
  const at::Tensor& output = only(outputs, rank_, "reduce-scatter");
  require_lists(inputs.size(), 1, "reduce-scatter");
  std::optional<Operation> operation = operation_of(Collective::reduce_scatter, output, options.reduceOp);
  if (!operation)
    return hand_over([&](auto& others) { return others.reduce_scatter(outputs, inputs, options); });
  require_alike(inputs.front(), output, size_, rank_, "reduce-scatter");
  return carry({.type = OpType::REDUCE_SCATTER,
                .operation = std::move(*operation),
                .inputs = inputs.front(),
                .outputs = outputs,
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const ::c10d::ReduceScatterOptions& options) {
  const EndsCoalescingWhenThrown ends;
  require_blocks(input, output, "reduce-scatter");
  std::optional<Operation> operation = operation_of(Collective::reduce_scatter, output, options.reduceOp);
  if (!operation)
    return hand_over([&](auto& others) { return others._reduce_scatter_base(output, input, options); });
  return carry({.type = OpType::_REDUCE_SCATTER_BASE,
                .operation = std::move(*operation),
                .inputs = blocks_of(input.contiguous()),
                .outputs = {output},
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const ::c10d::ReduceScatterOptions& options) {
  const EndsCoalescingWhenThrown ends;
  require_lists(outputs.size(), inputs.size(), "reduce-scatter");
  return joined(inputs.size(),
                [&](std::size_t i) { return _reduce_scatter_base(outputs[i], inputs[i], options); });
}

Backend::Work Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                     std::vector<std::int64_t>& output_sizes,
                                     std::vector<std::int64_t>& input_sizes,
                                     const ::c10d::AllToAllOptions& options) {
  const EndsCoalescingWhenThrown ends;
  // It is decided by what is the same on all ranks, and nothing else.
  const bool sized = !output_sizes.empty() || !input_sizes.empty();
  const bool alike = is_on_host(output) && is_on_host(input) && output.scalar_type() == input.scalar_type();
  const bool equal =
      alike && output.numel() == input.numel() && output.numel() > 0 && output.numel() % size_ == 0;
  if (!alike || (!sized && !equal)) {
    if (!output.is_contiguous())  // Gloo writes into memory as if it were dense
      throw ConfigError(
          fmt::format("rank {}: all-to-all: its output has gaps in memory: give a contiguous tensor", rank_));
    return hand_over([&](auto& others) {
      return others.alltoall_base(output, input, output_sizes, input_sizes, options);
    });
  }
  const at::Tensor whole =
      output.is_contiguous() ? output : at::empty_like(output, at::MemoryFormat::Contiguous);
  const at::Tensor from = input.contiguous();
  Call call{.type = OpType::ALLTOALL_BASE,
            .inputs = sized ? cut(from, input_sizes, size_, rank_) : from.view(-1).chunk(size_),
            .outputs = sized ? cut(whole, output_sizes, size_, rank_) : whole.view(-1).chunk(size_),
            .result = {output},
            .asynchronous = options.asyncOp};
  call.operation =
      *operation_of(sized ? Collective::all_to_all_v : Collective::all_to_all, call.inputs.front());
  if (sized) call.operation.gives = bytes_of(call.inputs);
  if (sized) call.operation.takes = bytes_of(call.outputs);
  if (!whole.is_same(output)) call.to_copy.emplace_back(output, whole);
  return carry(std::move(call));
}

Backend::Work Backend::barrier(const ::c10d::BarrierOptions& options) {
  const EndsCoalescingWhenThrown ends;
  return carry({.type = OpType::BARRIER, .operation = {}, .asynchronous = options.asyncOp});
}

void Backend::abort() { group().abort("its program aborted the process group"); }

}  // namespace dear::torch_backend
