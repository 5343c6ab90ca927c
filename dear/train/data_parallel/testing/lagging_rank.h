#pragma once

#include <any>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include "dear/testing/stub_device/stub_device.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/one_process.h"
#include "dear/train/streams/guard.h"

// A rank that trains on the stub device, where a test decides which of its streams lags behind.
namespace dear::train::testing::on_stub {

using streams::Guard;

inline constexpr int kRanks = 2;

struct Job;

enum class Stream : std::uint8_t { program, communication, side, third };

struct Setting {
  bool on_stub = true;
  bool lags = true;         // else nothing is held
  bool as_on_cpu = true;    // whether the CPU computes the same bits
  bool first_steps = true;  // two of them, before the program of the test
  Guard without = Guard::none;
  std::string policy = "dear", fusion = "2KiB";
  std::function<void(Job&)> prepare = [](Job&) {};  // before there is a DataParallel
  std::function<std::unique_ptr<DataParallel>(Job&, Group, DataParallelOptions)> make;  // else with AdamW
};

// One rank. What is enqueued on a stream of it runs there on the stub device, and at once on the CPU.
struct Job {
  Job(int rank_, const Group& group, const Setting& setting_)
      : rank(rank_),
        setting(setting_),
        device(setting_.on_stub ? stub_device::device(rank_) : at::Device(at::kCPU)),
        beside(group.duplicate()) {
    if (!setting.on_stub) return;
    impl.emplace(device.type());
    streams = {impl->getStream(device), impl->getStream(device), impl->getStreamFromGlobalPool(device),
               impl->getStreamFromGlobalPool(device)};
  }

  int rank;
  const Setting& setting;
  at::Device device;
  Group beside;
  std::optional<c10::impl::VirtualGuardImpl> impl;
  std::vector<c10::Stream> streams;
  Net net;
  std::vector<Batch> batches;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::unique_ptr<DataParallel> dp;
  std::any kept;                 // whatever a test keeps
  std::vector<at::Tensor> seen;  // to be compared beside the parameters

  [[nodiscard]] c10::Stream stream(Stream which) const { return streams.at(static_cast<std::size_t>(which)); }
  void barrier() { beside.barrier().wait(); }
  void backward(std::size_t step) {
    torch::mse_loss(net->forward(batches.at(step).inputs), batches[step].targets).backward();
  }
  void train(std::size_t step) {
    backward(step);
    dp->step();
  }
  void see(const at::Tensor& tensor) { seen.push_back(tensor.detach().clone()); }
  // The bytes that are there now, whoever has still to write them.
  void see_raw(const at::Tensor& tensor) {
    seen.push_back(
        at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(), at::kFloat).clone());
  }
  void see(double value) { seen.push_back(at::scalar_tensor(value)); }

  template <typename Act>
  void on(Stream which, Act act) const {
    const c10::OptionalStreamGuard guard(setting.on_stub ? std::optional(stream(which)) : std::nullopt);
    act();
  }
  // `later` waits for all that is enqueued on `earlier`.
  void order(Stream earlier, Stream later) const {
    if (!setting.on_stub) return;
    c10::Event event(device.type());
    event.record(stream(earlier));
    event.block(stream(later));
  }
  // Both ranks: rank 0's stream starts nothing, or nothing from a task `before` on, until `act` has enqueued
  // and everything else that may run has run. What was enqueued before has run. `act` makes the host wait for
  // nothing.
  template <typename Act>
  void lag(Stream which, Act act, const std::string& before = "") {
    settle();
    std::optional<stub_device::Held> held;
    if (lagging()) held.emplace(stream(which), before);
    act();
    settle();
  }
  // Both ranks: likewise, but the stream goes on as soon as a host waits, and has run all in the end.
  template <typename Act>
  void lag_until_the_host_waits(Stream which, Act act) {
    settle();
    const std::int64_t waits = stub_device::host_waits();
    barrier();
    std::optional<stub_device::Held> held;
    std::atomic<bool> over = false;
    std::thread releaser;
    if (lagging()) {
      held.emplace(stream(which));
      releaser = std::thread([&] {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (!over && stub_device::host_waits() == waits && std::chrono::steady_clock::now() < deadline)
          std::this_thread::yield();
        held->release();
      });
    }
    act();
    settle();
    over = true;
    if (releaser.joinable()) releaser.join();
    settle();
  }

 private:
  [[nodiscard]] bool lagging() const { return setting.on_stub && setting.lags && rank == 0; }
  void settle() {
    barrier();
    if (lagging()) stub_device::settle();
    barrier();
  }
};

}  // namespace dear::train::testing::on_stub
