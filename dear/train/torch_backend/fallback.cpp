#include "dear/train/torch_backend/fallback.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/torch_backend/works.h"

namespace dear::torch_backend {
namespace {

// On this thread: which backend coalesces, and the works so far.
thread_local const void* coalescing = nullptr;
thread_local std::vector<FallbackBackend::Work> coalesced;

}  // namespace

FallbackBackend::FallbackBackend(int rank, int size, c10::intrusive_ptr<::c10d::Backend> others,
                                 std::unique_ptr<ModelledMessages> messages)
    : ::c10d::Backend(rank, size), others_(std::move(others)), messages_(std::move(messages)) {}

FallbackBackend::EndsCoalescingWhenThrown::~EndsCoalescingWhenThrown() {
  if (std::uncaught_exceptions() == before_) return;
  coalescing = nullptr;
  coalesced.clear();
}

bool FallbackBackend::coalesces() const { return coalescing == this; }

FallbackBackend::Work FallbackBackend::collect(Work work) {
  if (coalesces()) coalesced.push_back(work);
  return work;
}

void FallbackBackend::startCoalescing() {
  coalescing = this;
  coalesced.clear();
}

FallbackBackend::Work FallbackBackend::endCoalescing() {
  coalescing = nullptr;
  return c10::make_intrusive<JoinedWork>(rank_, std::exchange(coalesced, {}));
}

FallbackBackend::Work FallbackBackend::allreduce_sparse(Tensors& tensors,
                                                        const ::c10d::AllreduceOptions& options) {
  return hand_over([&](auto& others) { return others.allreduce(tensors, options); });
}
FallbackBackend::Work FallbackBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const ::c10d::GatherOptions& options) {
  return hand_over([&](auto& others) { return others.gather(outputs, inputs, options); });
}
FallbackBackend::Work FallbackBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const ::c10d::ScatterOptions& options) {
  return hand_over([&](auto& others) { return others.scatter(outputs, inputs, options); });
}
FallbackBackend::Work FallbackBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                const ::c10d::AllToAllOptions& options) {
  return hand_over([&](auto& others) { return others.alltoall(outputs, inputs, options); });
}
void FallbackBackend::monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) {
  ++handed_over_;
  others_->monitoredBarrier(options, wait_all_ranks);
}
FallbackBackend::Work FallbackBackend::send(Tensors& tensors, int to, int tag) {
  return hand_over([&](auto& others) {
    return messages_ ? messages_->send(tensors, to, tag) : others.send(tensors, to, tag);
  });
}
FallbackBackend::Work FallbackBackend::recv(Tensors& tensors, int from, int tag) {
  return hand_over([&](auto& others) {
    return messages_ ? messages_->recv(tensors, from, tag) : others.recv(tensors, from, tag);
  });
}
FallbackBackend::Work FallbackBackend::recvAnysource(Tensors& tensors, int tag) {
  if (messages_)
    throw ConfigError(fmt::format(
        "rank {}: a receive from any rank cannot take the time of a modelled link: name the rank that sends",
        rank_));
  return hand_over([&](auto& others) { return others.recvAnysource(tensors, tag); });
}

}  // namespace dear::torch_backend
