#include "dear/comm/process_group/channels/point_to_point.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "dear/base/os/blocked_signals.h"

namespace dear::channels {
namespace {

using C10dBackend = c10::intrusive_ptr<::c10d::Backend>;
using C10dWork = c10::intrusive_ptr<::c10d::Work>;

// Deadlines are ours: a wait of the messaging library ends with the message, or because it is interrupted.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 3650);
constexpr std::chrono::milliseconds kNow{1};  // none at all would mean the messaging library's default

constexpr std::chrono::microseconds kShortestNap{20};
constexpr std::chrono::microseconds kLongestNap{2'000};

// A message of Gloo: only a wait says that it has arrived; it sleeps, and another thread can end it. A wait
// whose time is over breaks all connections.
class OfGloo final : public Posted {
 public:
  explicit OfGloo(C10dWork work) : work_(std::move(work)) {}
  bool wait(const std::atomic<bool>&) override { return work_->wait(kForever); }
  void interrupt() noexcept override {
    try {
      work_->abort();
    } catch (const std::exception&) {  // it ended meanwhile
    }
  }
  // Only a wait tells, which ends when it is interrupted: at once, or, if the interruption came first, though
  // the message is complete. So it is asked again, with more time in between.
  bool is_complete() override {
    for (const int patience : {1, 10, 100}) {
      std::promise<void> over;
      const auto interruption = std::async(std::launch::async, [this, patience, ended = over.get_future()] {
        if (ended.wait_for(std::chrono::milliseconds(patience)) == std::future_status::timeout) interrupt();
      });
      const bool complete = work_->wait(kForever);
      over.set_value();
      if (complete) return true;
    }
    return false;
  }
  void break_off() override { work_->wait(kNow); }

 private:
  const C10dWork work_;
};

// A message of any other messaging library, which says when it has arrived. MPI would end the process when
// one is dropped unfinished, so it is kept for good.
class OfAnother final : public Posted {
 public:
  explicit OfAnother(C10dWork work) : work_(std::move(work)) {}
  ~OfAnother() override {
    if (!work_->isCompleted()) static_cast<void>(work_.release());
  }
  bool wait(const std::atomic<bool>& interrupted) override {
    for (auto nap = kShortestNap; !work_->isCompleted(); nap = std::min(2 * nap, kLongestNap)) {
      if (interrupted.load(std::memory_order_acquire)) return false;
      std::this_thread::sleep_for(nap);
    }
    return work_->wait();
  }
  void interrupt() noexcept override {}
  bool is_complete() override { return work_->isCompleted() && work_->wait(); }
  void break_off() override {}

 private:
  C10dWork work_;
};

class C10dPointToPoint final : public PointToPoint {
 public:
  explicit C10dPointToPoint(C10dBackend backend)
      : backend_(std::move(backend)),
        is_gloo_(backend_->getBackendName() == "gloo"),
        description_("c10d " + backend_->getBackendName()) {}

  [[nodiscard]] int rank() const override { return backend_->getRank(); }
  [[nodiscard]] int size() const override { return backend_->getSize(); }
  [[nodiscard]] const char* description() const override { return description_.c_str(); }
  [[nodiscard]] bool forgets_memory() const override { return is_gloo_; }

  std::unique_ptr<Posted> send(void* data, std::int64_t bytes, int peer, int tag) override {
    std::vector<at::Tensor> tensors = bytes_at(data, bytes);
    const os::BlockedSignals blocked;  // a connection that broke is an error, and no SIGPIPE
    return posted(backend_->send(tensors, peer, tag));
  }
  std::unique_ptr<Posted> receive(void* data, std::int64_t bytes, int peer, int tag) override {
    std::vector<at::Tensor> tensors = bytes_at(data, bytes);
    const os::BlockedSignals blocked;  // it says that it is ready, and so writes
    return posted(backend_->recv(tensors, peer, tag));
  }

 private:
  // Only a view.
  static std::vector<at::Tensor> bytes_at(void* data, std::int64_t bytes) {
    return {at::from_blob(data, {bytes}, at::TensorOptions().dtype(at::kByte))};
  }
  [[nodiscard]] std::unique_ptr<Posted> posted(C10dWork work) const {
    if (is_gloo_) return std::make_unique<OfGloo>(std::move(work));
    return std::make_unique<OfAnother>(std::move(work));
  }

  const C10dBackend backend_;
  const bool is_gloo_;
  const std::string description_;
};

}  // namespace

std::unique_ptr<PointToPoint> make_point_to_point(C10dBackend backend) {
  return std::make_unique<C10dPointToPoint>(std::move(backend));
}

}  // namespace dear::channels
