#include "dear/train/torch_backend/works.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/core/List.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace dear::torch_backend {
namespace {

using Future = c10::ivalue::Future;

// torch.distributed's own class of errors, so that programs catch ours as those of other backends.
std::exception_ptr as_backend_error(const std::exception_ptr& error) {
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return std::make_exception_ptr(
        c10::DistBackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, known.what()));
  } catch (...) {
    return error;
  }
}

}  // namespace

CarriedWork::CarriedWork(int rank, ::c10d::OpType type, std::vector<at::Tensor> outputs,
                         std::shared_ptr<Callbacks> callbacks)
    : Work(rank, type, nullptr), outputs_(std::move(outputs)), callbacks_(std::move(callbacks)) {}

void CarriedWork::ended(const std::exception_ptr& error) {
  finish(as_backend_error(error));
  c10::intrusive_ptr<Future> future;
  {
    const std::lock_guard lock(future_mutex_);
    over_ = true;
    future = future_;
  }
  if (!future) return;
  const auto self = c10::intrusive_ptr<CarriedWork>::reclaim_copy(this);
  callbacks_->post([self, future] { self->complete(future); });
}

bool CarriedWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) {
    std::unique_lock lock(mutex_);
    if (!cv_.wait_for(lock, timeout, [this] { return completed_; }))
      C10_THROW_ERROR(
          DistBackendError,
          fmt::format("rank {}: {} has not ended within {} ms, as wait() was asked for: a rank has not come "
                      "to it, or is slow; it goes on until the timeout of its process group: wait longer",
                      rank_, ::c10d::opTypeToString(opType_), timeout.count()));
  }
  return Work::wait(kNoTimeout);
}

c10::intrusive_ptr<Future> CarriedWork::getFuture() {
  std::unique_lock lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  if (over_) complete(future_);
  return future_;
}

void CarriedWork::complete(const c10::intrusive_ptr<Future>& future) const {
  if (const std::exception_ptr error = exception()) {
    future->setError(error);
  } else {
    future->markCompleted(at::IValue(outputs_));
  }
}

JoinedWork::JoinedWork(int rank, std::vector<c10::intrusive_ptr<::c10d::Work>> parts)
    : Work(rank, ::c10d::OpType::COALESCED, nullptr), parts_(std::move(parts)) {}

bool JoinedWork::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isCompleted(); });
}
bool JoinedWork::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isSuccess(); });
}
std::exception_ptr JoinedWork::exception() const {
  for (const auto& part : parts_)
    if (const std::exception_ptr error = part->exception()) return error;
  return nullptr;
}
bool JoinedWork::wait(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (const auto& part : parts_) {
    auto left = timeout;
    if (timeout > kNoTimeout) {
      left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      left = std::max(left, std::chrono::milliseconds(1));
    }
    part->wait(left);
  }
  return true;
}
void JoinedWork::synchronize() {
  for (const auto& part : parts_) part->synchronize();
}
std::vector<at::Tensor> JoinedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& part : parts_) {
    const std::vector<at::Tensor> some = part->result();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// Completed when the last part is, with the tensors of all.
c10::intrusive_ptr<Future> JoinedWork::getFuture() {
  c10::List<c10::intrusive_ptr<Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& part : parts_) futures.push_back(part->getFuture());
  const auto self = c10::intrusive_ptr<JoinedWork>::reclaim_copy(this);
  return c10::collectAll(futures)->then(
      [self](Future& all) {
        if (all.hasError()) std::rethrow_exception(all.exception_ptr());
        if (const std::exception_ptr error = self->exception()) std::rethrow_exception(error);
        return at::IValue(self->result());
      },
      c10::ListType::create(c10::TensorType::get()));
}

}  // namespace dear::torch_backend
