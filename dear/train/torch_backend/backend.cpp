#include "dear/train/torch_backend/backend.h"

#include <algorithm>
#include <utility>

#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/torch_backend/coalescing.h"
#include "dear/train/torch_backend/tensors.h"
#include "dear/train/torch_backend/works.h"

namespace dear::torch_backend {
namespace {

using ::c10d::OpType;
using ::c10d::ReduceOp;

}  // namespace

// An operation with the tensors that it is about.
struct Backend::Call {
  OpType type;
  Operation operation;
  Tensors inputs;   // by block
  Tensors outputs;  // by block; may be the inputs
  Tensors result;   // of the work
  bool asynchronous = true;
  std::vector<std::pair<at::Tensor, at::Tensor>> to_copy{};  // to, from: at the end
};

Backend::Backend(Group group, c10::intrusive_ptr<::c10d::Backend> others)
    : ::c10d::Backend(group.rank(), group.size()),
      others_(std::move(others)),
      carrier_(std::make_unique<Carrier>(std::move(group))) {}
Backend::~Backend() = default;

void Backend::end() {
  carrier_.reset();
  callbacks_.reset();
}

// None for what the group does not have: a type, or a reduction.
std::optional<Operation> Backend::operation_of(Collective collective, const at::Tensor& like,
                                               const ReduceOp& reduction) const {
  Operation operation{.collective = collective, .count = like.numel()};
  if (!reduces(collective)) {  // bytes
    operation.count *= like.element_size();
    return operation;
  }
  const std::optional<DType> dtype = dtype_of(like.scalar_type());
  const std::optional<Reduction> how = reduction_of(reduction);
  if (!dtype || !how || !obstacle_to(*dtype, *how).empty()) return std::nullopt;
  if (*how == Reduction::average && !at::isFloatingType(like.scalar_type())) return std::nullopt;
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

void Backend::require_one_list(std::size_t lists, const char* call) const {
  if (lists != 1)
    throw ConfigError(
        fmt::format("rank {}: {}: there are {} lists of tensors: give one", rank_, call, lists));
}

void Backend::require_as_many(std::size_t outputs, std::size_t inputs, const char* call) const {
  if (outputs != inputs)
    throw ConfigError(fmt::format("rank {}: {}: {} inputs have {} outputs: give one for each", rank_, call,
                                  inputs, outputs));
}

// Gloo writes into memory as if it were dense.
void Backend::require_dense(const at::Tensor& output, const char* call) const {
  if (!output.is_contiguous())
    throw ConfigError(
        fmt::format("rank {}: {}: its output has gaps in memory: give a contiguous tensor", rank_, call));
}

Backend::Work Backend::carry(Call call) {
  ++carried_;
  const at::NoGradGuard no_grad;
  auto work = c10::make_intrusive<CarriedWork>(rank_, call.type, call.result, callbacks_);
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
  if (call.asynchronous || coalescing::backend == this) {
    carrier_->post(std::move(call.operation));
  } else {
    carrier_->run(std::move(call.operation));
  }
  return collect(work);
}

Backend::Work Backend::pass_to_current(Work work) {
  ++handed_over_;
  return collect(std::move(work));
}

Backend::Work Backend::collect(Work work) {
  if (coalescing::backend == this) coalescing::works.push_back(work);
  return work;
}

void Backend::startCoalescing() {
  coalescing::backend = this;
  coalescing::works.clear();
}

Backend::Work Backend::endCoalescing() {
  coalescing::backend = nullptr;
  return c10::make_intrusive<JoinedWork>(rank_, std::exchange(coalescing::works, {}));
}

Backend::Work Backend::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) {
  const coalescing::EndsWhenThrown ends;
  const at::Tensor& tensor = only(tensors, rank_, "broadcast");
  Operation operation = *operation_of(Collective::broadcast, tensor, {});
  operation.root = root_of(options.rootRank, "broadcast");
  return carry({.type = OpType::BROADCAST,
                .operation = std::move(operation),
                .inputs = {tensor},
                .outputs = {tensor},
                .result = tensors,
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  const coalescing::EndsWhenThrown ends;
  if (tensors.size() != 1 || !is_on_host(tensors.front()))
    return pass_to_current(others_->allreduce(tensors, options));
  std::optional<Operation> operation =
      operation_of(Collective::all_reduce, tensors.front(), options.reduceOp);
  if (!operation) return pass_to_current(others_->allreduce(tensors, options));
  return carry({.type = OpType::ALLREDUCE,
                .operation = std::move(*operation),
                .inputs = tensors,
                .outputs = tensors,
                .result = tensors,
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  const coalescing::EndsWhenThrown ends;
  return pass_to_current(others_->allreduce(tensors, options));
}

Backend::Work Backend::allreduce_coalesced(Tensors& tensors,
                                           const ::c10d::AllreduceCoalescedOptions& options) {
  const coalescing::EndsWhenThrown ends;
  std::vector<Work> parts;
  for (const at::Tensor& tensor : tensors) {
    Tensors one{tensor};
    parts.push_back(allreduce(one, options));
  }
  return c10::make_intrusive<JoinedWork>(rank_, std::move(parts));
}

Backend::Work Backend::reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) {
  const coalescing::EndsWhenThrown ends;
  const at::Tensor& tensor = only(tensors, rank_, "reduce");
  std::optional<Operation> operation = operation_of(Collective::reduce, tensor, options.reduceOp);
  if (!operation) return pass_to_current(others_->reduce(tensors, options));
  operation->root = root_of(options.rootRank, "reduce");
  return carry({.type = OpType::REDUCE,
                .operation = std::move(*operation),
                .inputs = tensors,
                .outputs = tensors,
                .result = tensors,
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const ::c10d::AllgatherOptions& options) {
  const coalescing::EndsWhenThrown ends;
  const at::Tensor& input = only(inputs, rank_, "all-gather");
  require_one_list(outputs.size(), "all-gather");
  require_alike(outputs.front(), input, size_, rank_, "all-gather");
  return carry({.type = OpType::ALLGATHER,
                .operation = *operation_of(Collective::all_gather, input, {}),
                .inputs = inputs,
                .outputs = outputs.front(),
                .result = outputs.front(),
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                       const ::c10d::AllgatherOptions& options) {
  const coalescing::EndsWhenThrown ends;
  require_on_host(input, rank_, "all-gather");
  require_on_host(output, rank_, "all-gather");
  if (output.numel() != input.numel() * size_ || output.scalar_type() != input.scalar_type())
    throw ConfigError(fmt::format(
        "rank {}: all-gather: the output has {} elements, and {} ranks give {} each: make it as large as all "
        "inputs, and of their type",
        rank_, output.numel(), size_, input.numel()));
  const at::Tensor whole =
      output.is_contiguous() ? output : at::empty_like(output, at::MemoryFormat::Contiguous);
  Call call{.type = OpType::_ALLGATHER_BASE,
            .operation = *operation_of(Collective::all_gather, input, {}),
            .inputs = {input},
            .outputs = whole.view(-1).chunk(size_),
            .result = {output},
            .asynchronous = options.asyncOp};
  if (input.numel() == 0) call.outputs = Tensors(static_cast<std::size_t>(size_), whole.view(-1));
  if (!whole.is_same(output)) call.to_copy.emplace_back(output, whole);
  return carry(std::move(call));
}

// outputs[r][i] is what rank r has for inputs[i].
Backend::Work Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const ::c10d::AllgatherOptions& options) {
  const coalescing::EndsWhenThrown ends;
  if (outputs.size() != static_cast<std::size_t>(size_))
    throw ConfigError(
        fmt::format("rank {}: all-gather: {} ranks have {} lists of outputs: give one for each rank", rank_,
                    size_, outputs.size()));
  for (const Tensors& list : outputs) require_as_many(list.size(), inputs.size(), "all-gather");
  std::vector<Work> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Tensors> to(1);
    for (const Tensors& of_rank : outputs) to.front().push_back(of_rank[i]);
    Tensors from{inputs[i]};
    parts.push_back(allgather(to, from, options));
  }
  return c10::make_intrusive<JoinedWork>(rank_, std::move(parts));
}

Backend::Work Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const ::c10d::AllgatherOptions& options) {
  const coalescing::EndsWhenThrown ends;
  require_as_many(outputs.size(), inputs.size(), "all-gather");
  std::vector<Work> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(_allgather_base(outputs[i], inputs[i], options));
  return c10::make_intrusive<JoinedWork>(rank_, std::move(parts));
}

Backend::Work Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                              const ::c10d::GatherOptions& options) {
  const coalescing::EndsWhenThrown ends;
  return pass_to_current(others_->gather(outputs, inputs, options));
}
Backend::Work Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                               const ::c10d::ScatterOptions& options) {
  const coalescing::EndsWhenThrown ends;
  return pass_to_current(others_->scatter(outputs, inputs, options));
}

Backend::Work Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                      const ::c10d::ReduceScatterOptions& options) {
  const coalescing::EndsWhenThrown ends;
  const at::Tensor& output = only(outputs, rank_, "reduce-scatter");
  require_one_list(inputs.size(), "reduce-scatter");
  std::optional<Operation> operation = operation_of(Collective::reduce_scatter, output, options.reduceOp);
  if (!operation) return pass_to_current(others_->reduce_scatter(outputs, inputs, options));
  require_alike(inputs.front(), output, size_, rank_, "reduce-scatter");
  return carry({.type = OpType::REDUCE_SCATTER,
                .operation = std::move(*operation),
                .inputs = inputs.front(),
                .outputs = outputs,
                .result = outputs,
                .asynchronous = options.asyncOp});
}

Backend::Work Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const ::c10d::ReduceScatterOptions& options) {
  const coalescing::EndsWhenThrown ends;
  require_on_host(input, rank_, "reduce-scatter");
  require_on_host(output, rank_, "reduce-scatter");
  std::optional<Operation> operation = operation_of(Collective::reduce_scatter, output, options.reduceOp);
  if (!operation) return pass_to_current(others_->_reduce_scatter_base(output, input, options));
  if (input.numel() != output.numel() * size_ || output.scalar_type() != input.scalar_type())
    throw ConfigError(fmt::format(
        "rank {}: reduce-scatter: the input has {} elements, and {} ranks take {} each: make it as large as "
        "all outputs, and of their type",
        rank_, input.numel(), size_, output.numel()));
  const at::Tensor whole = input.contiguous().view(-1);
  Call call{.type = OpType::_REDUCE_SCATTER_BASE,
            .operation = std::move(*operation),
            .inputs = whole.chunk(size_),
            .outputs = {output},
            .result = {output},
            .asynchronous = options.asyncOp};
  if (output.numel() == 0) call.inputs = Tensors(static_cast<std::size_t>(size_), whole);
  return carry(std::move(call));
}

Backend::Work Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const ::c10d::ReduceScatterOptions& options) {
  const coalescing::EndsWhenThrown ends;
  require_as_many(outputs.size(), inputs.size(), "reduce-scatter");
  std::vector<Work> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  return c10::make_intrusive<JoinedWork>(rank_, std::move(parts));
}

Backend::Work Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                     std::vector<std::int64_t>& output_sizes,
                                     std::vector<std::int64_t>& input_sizes,
                                     const ::c10d::AllToAllOptions& options) {
  const coalescing::EndsWhenThrown ends;
  // By what is the same on all ranks, and nothing else.
  const bool sized = !output_sizes.empty() || !input_sizes.empty();
  const bool alike = is_on_host(output) && is_on_host(input) && output.scalar_type() == input.scalar_type();
  const bool equal =
      alike && output.numel() == input.numel() && output.numel() > 0 && output.numel() % size_ == 0;
  if (!alike || (!sized && !equal)) {
    require_dense(output, "all-to-all");
    return pass_to_current(others_->alltoall_base(output, input, output_sizes, input_sizes, options));
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
      *operation_of(sized ? Collective::all_to_all_v : Collective::all_to_all, call.inputs.front(), {});
  if (sized) call.operation.gives = bytes_of(call.inputs);
  if (sized) call.operation.takes = bytes_of(call.outputs);
  if (!whole.is_same(output)) call.to_copy.emplace_back(output, whole);
  return carry(std::move(call));
}

Backend::Work Backend::alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) {
  const coalescing::EndsWhenThrown ends;
  return pass_to_current(others_->alltoall(outputs, inputs, options));
}

Backend::Work Backend::barrier(const ::c10d::BarrierOptions& options) {
  const coalescing::EndsWhenThrown ends;
  return carry({.type = OpType::BARRIER, .operation = {}, .asynchronous = options.asyncOp});
}

void Backend::monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) {
  ++handed_over_;
  others_->monitoredBarrier(options, wait_all_ranks);
}

Backend::Work Backend::send(Tensors& tensors, int to, int tag) {
  const coalescing::EndsWhenThrown ends;
  return pass_to_current(others_->send(tensors, to, tag));
}
Backend::Work Backend::recv(Tensors& tensors, int from, int tag) {
  const coalescing::EndsWhenThrown ends;
  return pass_to_current(others_->recv(tensors, from, tag));
}
Backend::Work Backend::recvAnysource(Tensors& tensors, int tag) {
  const coalescing::EndsWhenThrown ends;
  return pass_to_current(others_->recvAnysource(tensors, tag));
}

void Backend::abort() { group().abort("its program aborted the process group"); }
void Backend::shutdown() { others_->shutdown(); }

}  // namespace dear::torch_backend
