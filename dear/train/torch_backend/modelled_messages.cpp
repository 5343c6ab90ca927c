#include "dear/train/torch_backend/modelled_messages.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/shaped/modelled_network.h"

namespace dear::torch_backend {
namespace {

using Part = ModelledMessages::Work;

at::Tensor stamp_of(SteadyTime at) {
  return at::full({1}, static_cast<std::int64_t>(at.time_since_epoch().count()), at::kLong);
}
SteadyTime time_of(const at::Tensor& stamp) {
  return SteadyTime(SteadyTime::duration(stamp.const_data_ptr<std::int64_t>()[0]));
}

// The real messages, and the moment before which the modelled one is not through.
class ModelledWork final : public ::c10d::Work {
 public:
  ModelledWork(int rank, ::c10d::OpType type, Part stamp_work, Part content, at::Tensor due, std::string what)
      : Work(rank, type, nullptr),
        stamp_work_(std::move(stamp_work)),
        content_(std::move(content)),
        due_(std::move(due)),
        what_(std::move(what)) {}

  bool isCompleted() override {
    return stamp_work_->isCompleted() && content_->isCompleted() && time_of(due_) <= SteadyClock::now();
  }
  bool isSuccess() const override { return stamp_work_->isSuccess() && content_->isSuccess(); }
  std::exception_ptr exception() const override {
    const std::exception_ptr first = stamp_work_->exception();
    return first ? first : content_->exception();
  }
  void synchronize() override { wait(kNoTimeout); }

  bool wait(std::chrono::milliseconds timeout) override {
    const SteadyTime until = SteadyClock::now() + timeout;
    stamp_work_->wait(timeout);
    content_->wait(left(timeout, until));
    const SteadyTime due = time_of(due_);
    if (timeout > kNoTimeout && due > until)
      C10_THROW_ERROR(
          DistBackendError,
          fmt::format(
              "rank {}: {} takes {} more, longer than the timeout leaves: raise the timeout or model a "
              "faster network",
              rank_, what_, format_seconds(std::chrono::duration<double>(due - SteadyClock::now()).count())));
    std::this_thread::sleep_until(due);
    return true;
  }

 private:
  static std::chrono::milliseconds left(std::chrono::milliseconds timeout, SteadyTime until) {
    if (timeout <= kNoTimeout) return timeout;
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now());
    return std::max(rest, std::chrono::milliseconds(1));
  }

  const Part stamp_work_, content_;
  const at::Tensor due_;  // of a receive: written by its stamp
  const std::string what_;
};

}  // namespace

ModelledMessages::ModelledMessages(c10::intrusive_ptr<::c10d::Backend> others, PairCluster cluster)
    : others_(std::move(others)), cluster_(std::move(cluster)), free_at_(cluster_.devices.size()) {
  require_ranks(cluster_, others_->getSize());
}

void ModelledMessages::require_peer(int rank) const {
  if (rank < 0 || rank >= others_->getSize() || rank == others_->getRank())
    throw ConfigError(
        fmt::format("rank {}: no message goes between this rank and rank {} of {}: name another",
                    others_->getRank(), rank, others_->getSize()));
}

ModelledMessages::Work ModelledMessages::send(std::vector<at::Tensor>& tensors, int to, int tag) {
  require_peer(to);
  const int rank = others_->getRank();
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  const std::lock_guard lock(mutex_);
  const auto later = [](SteadyTime from, double seconds) {
    return Deadline::after(std::chrono::duration<double>(seconds), from).at();
  };
  SteadyTime& free_at = free_at_[index_of(to)];
  free_at = later(std::max(free_at, SteadyClock::now()), cluster_.transfer_seconds(rank, to, bytes));
  std::vector<at::Tensor> stamp{
      stamp_of(later(free_at, cluster_.latency_seconds[index_of(rank)][index_of(to)]))};
  Work stamp_work = others_->send(stamp, to, tag);
  return c10::make_intrusive<ModelledWork>(
      rank, ::c10d::OpType::SEND, std::move(stamp_work), others_->send(tensors, to, tag), stamp_of(free_at),
      fmt::format("the message to rank {} on its link of the modelled network {}", to, cluster_.name));
}

ModelledMessages::Work ModelledMessages::recv(std::vector<at::Tensor>& tensors, int from, int tag) {
  require_peer(from);
  std::vector<at::Tensor> stamp{stamp_of(SteadyTime{})};
  Work stamp_work = others_->recv(stamp, from, tag);
  return c10::make_intrusive<ModelledWork>(
      others_->getRank(), ::c10d::OpType::RECV, std::move(stamp_work), others_->recv(tensors, from, tag),
      stamp.front(),
      fmt::format("the message from rank {} on its link of the modelled network {}", from, cluster_.name));
}

}  // namespace dear::torch_backend
