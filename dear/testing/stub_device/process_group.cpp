#include "dear/testing/stub_device/process_group.h"

#include <utility>

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "dear/testing/stub_device/fallback.h"
#include "dear/testing/stub_device/guard.h"

namespace dear::stub_device {
namespace {

using ::c10d::OpType;

// Holds what ran on a stream of the group's own.
class StubWork final : public ::c10d::Work {
 public:
  StubWork(int rank, OpType type, std::vector<at::Tensor> tensors, std::vector<at::Tensor> outputs,
           c10::Stream stream)
      : Work(rank, type), tensors_(std::move(tensors)), outputs_(std::move(outputs)), stream_(stream) {
    end_.record(stream);
    const c10::StreamGuard guard(stream);
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{stream.device()});
    future_->markCompleted(c10::IValue(outputs_));
  }
  ~StubWork() override {  // nobody waited: the group's stream may still use them
    const c10::impl::VirtualGuardImpl impl(kType);
    for (const at::Tensor& tensor : tensors_)
      impl.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
  }
  bool isCompleted() override { return end_.query(); }
  bool isSuccess() const override { return end_.query(); }
  void synchronize() override {
    end_.block(current_stream(stream_.device()));
    tensors_.clear();
    if (retrieveOpType() == OpType::BARRIER) end_.synchronize();
  }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    synchronize();
    return true;
  }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<at::Tensor> tensors_, outputs_;
  c10::Stream stream_;
  c10::Event end_{kType};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "a collective of the stub device takes one tensor of each rank, not ",
              tensors.size());
  return tensors[0];
}

const at::Tensor& checked(const at::Tensor& tensor) {
  TORCH_CHECK(is_stub(tensor), "the process group of the stub device was given a tensor of ",
              tensor.device());
  TORCH_CHECK(tensor.is_contiguous(), "tensors of collectives must be contiguous");
  return tensor;
}

std::vector<at::Tensor> aliases(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> found;
  for (const at::Tensor& tensor : tensors) found.push_back(alias_on_cpu(checked(tensor)));
  return found;
}

std::vector<at::Tensor> pieces(const at::Tensor& tensor, int count, const char* what) {
  TORCH_CHECK(tensor.numel() % count == 0, what, " has ", tensor.numel(), " elements, which ", count,
              " ranks cannot share");
  return alias_on_cpu(checked(tensor)).view({count, -1}).unbind();
}

std::vector<at::Tensor> joined(std::vector<at::Tensor> first, const std::vector<at::Tensor>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

c10::Stream StubBackend::own_stream(c10::Device device) {
  const std::lock_guard lock(mutex_);
  for (const auto& [of, stream] : own_streams_)
    if (of == device) return stream;
  const c10::impl::VirtualGuardImpl impl(kType);
  return own_streams_.emplace_back(device, impl.getStreamFromGlobalPool(device, true)).second;
}

StubBackend::Work StubBackend::make(std::vector<Call> calls, bool async) {
  if (coalescing_) {
    coalesced_async_ = async;
    for (Call& call : calls) noted_.push_back(std::move(call));
    return nullptr;
  }
  if (calls.empty()) return nullptr;
  const c10::Device device = calls[0].tensors.at(0).device();
  const c10::Stream current = current_stream(device);
  const c10::Stream stream = async ? own_stream(device) : current;
  if (async) Streams::all().wait(stream, Streams::all().record(current));
  Tensors tensors, outputs;
  const OpType type = calls.size() == 1 ? calls[0].type : OpType::COALESCED;
  for (Call& call : calls) {
    ++calls_;
    tensors = joined(std::move(tensors), call.tensors);
    outputs = joined(std::move(outputs), call.outputs);
    exchange_->enqueue(getRank(), stream, std::move(call.part));
  }
  if (!async) return nullptr;
  return c10::make_intrusive<StubWork>(getRank(), type, std::move(tensors), std::move(outputs), stream);
}

void StubBackend::startCoalescing() {
  TORCH_CHECK(!coalescing_, "startCoalescing() was called twice");
  coalescing_ = true;
}

StubBackend::Work StubBackend::endCoalescing() {
  TORCH_CHECK(coalescing_, "endCoalescing() was called without startCoalescing()");
  coalescing_ = false;
  return make(std::exchange(noted_, {}), coalesced_async_);
}

StubBackend::Work StubBackend::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) {
  return make({{{Movement::broadcast,
                 aliases({only(tensors)}),
                 aliases(tensors),
                 {},
                 static_cast<int>(options.rootRank)},
                tensors,
                tensors,
                OpType::BROADCAST}},
              options.asyncOp);
}

StubBackend::Work StubBackend::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  return make({{{Movement::all_reduce, aliases({only(tensors)}), aliases(tensors), options.reduceOp},
                tensors,
                tensors,
                OpType::ALLREDUCE}},
              options.asyncOp);
}

StubBackend::Work StubBackend::allreduce_coalesced(Tensors& tensors,
                                                   const ::c10d::AllreduceCoalescedOptions& options) {
  std::vector<Call> calls;
  for (const at::Tensor& tensor : tensors)
    calls.push_back({{Movement::all_reduce, aliases({tensor}), aliases({tensor}), options.reduceOp},
                     {tensor},
                     {tensor},
                     OpType::ALLREDUCE_COALESCED});
  return make(std::move(calls), options.asyncOp);
}

StubBackend::Work StubBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const ::c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == 1, "an all-gather of the stub device has one list of outputs");
  return make({{{Movement::all_gather, aliases({only(inputs)}), aliases(outputs[0])},
                joined(outputs[0], inputs),
                outputs[0],
                OpType::ALLGATHER}},
              options.asyncOp);
}

StubBackend::Work StubBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                               const ::c10d::AllgatherOptions& options) {
  TORCH_CHECK(output.numel() == input.numel() * getSize(), "an all-gather of ", input.numel(),
              " elements of ", getSize(), " ranks was given an output of ", output.numel());
  return make({{{Movement::all_gather, aliases({input}), pieces(output, getSize(), "an output")},
                {output, input},
                {output},
                OpType::_ALLGATHER_BASE}},
              options.asyncOp);
}

StubBackend::Work StubBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                               const ::c10d::AllgatherOptions& options) {
  std::vector<Call> calls;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    calls.push_back(
        {{Movement::all_gather, aliases({inputs[i]}), pieces(outputs.at(i), getSize(), "an output")},
         {outputs[i], inputs[i]},
         {outputs[i]},
         OpType::COALESCED});
  return make(std::move(calls), options.asyncOp);
}

StubBackend::Work StubBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                              const ::c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(inputs.size() == 1, "a reduce-scatter of the stub device has one list of inputs");
  return make({{{Movement::reduce_scatter, aliases(inputs[0]), aliases({only(outputs)}), options.reduceOp},
                joined(outputs, inputs[0]),
                outputs,
                OpType::REDUCE_SCATTER}},
              options.asyncOp);
}

StubBackend::Work StubBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                    const ::c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(input.numel() == output.numel() * getSize(), "a reduce-scatter of ", input.numel(),
              " elements to ", getSize(), " ranks was given an output of ", output.numel());
  return make(
      {{{Movement::reduce_scatter, pieces(input, getSize(), "an input"), aliases({output}), options.reduceOp},
        {output, input},
        {output},
        OpType::_REDUCE_SCATTER_BASE}},
      options.asyncOp);
}

StubBackend::Work StubBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                               const ::c10d::ReduceScatterOptions& options) {
  std::vector<Call> calls;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    calls.push_back({{Movement::reduce_scatter, pieces(inputs[i], getSize(), "an input"),
                      aliases({outputs.at(i)}), options.reduceOp},
                     {outputs[i], inputs[i]},
                     {outputs[i]},
                     OpType::COALESCED});
  return make(std::move(calls), options.asyncOp);
}

StubBackend::Work StubBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                             std::vector<std::int64_t>& output_sizes,
                                             std::vector<std::int64_t>& input_sizes,
                                             const ::c10d::AllToAllOptions& options) {
  TORCH_CHECK(output_sizes.empty() && input_sizes.empty(),
              "an all-to-all of the stub device has equal blocks");
  return make(
      {{{Movement::all_to_all, pieces(input, getSize(), "an input"), pieces(output, getSize(), "an output")},
        {output, input},
        {output},
        OpType::ALLTOALL_BASE}},
      options.asyncOp);
}

StubBackend::Work StubBackend::barrier(const ::c10d::BarrierOptions& options) {
  const c10::impl::VirtualGuardImpl impl(kType);
  const at::Tensor token = at::zeros({1}, at::TensorOptions(options.device.value_or(impl.getDevice())));
  return make({{{Movement::barrier, aliases({token}), {}}, {token}, {}, OpType::BARRIER}}, options.asyncOp);
}

std::vector<c10::intrusive_ptr<::c10d::ProcessGroup>> make_process_groups(int ranks) {
  const auto meeting = std::make_shared<Meeting>(ranks);
  std::vector<c10::intrusive_ptr<::c10d::ProcessGroup>> groups;
  for (int rank = 0; rank < ranks; ++rank) {
    auto group = c10::make_intrusive<::c10d::ProcessGroup>(rank, ranks);
    group->setBackend(kType, ::c10d::ProcessGroup::BackendType::CUSTOM,
                      c10::make_intrusive<StubBackend>(meeting, rank));
    group->setDefaultBackend(::c10d::ProcessGroup::BackendType::CUSTOM);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace dear::stub_device
