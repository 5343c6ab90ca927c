#pragma once

#include <exception>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "dear/train/torch_backend/callbacks.h"

namespace dear::torch_backend {

// An operation under way, as torch.distributed knows it. Its exception is a DistBackendError.
class CarriedWork final : public ::c10d::Work {
 public:
  CarriedWork(int rank, ::c10d::OpType type, std::vector<at::Tensor> outputs,
              std::shared_ptr<Callbacks> callbacks);
  void ended(const std::exception_ptr& error);  // once

  // With a timeout: DistBackendError when the operation takes longer. It goes on all the same, within the
  // timeout of its group.
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void complete(const c10::intrusive_ptr<c10::ivalue::Future>& future) const;

  std::vector<at::Tensor> outputs_;
  std::shared_ptr<Callbacks> callbacks_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // once it was asked for
  bool over_ = false;
};

// Several operations as one.
class JoinedWork final : public ::c10d::Work {
 public:
  JoinedWork(int rank, std::vector<c10::intrusive_ptr<::c10d::Work>> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<::c10d::Work>> parts_;
};

}  // namespace dear::torch_backend
