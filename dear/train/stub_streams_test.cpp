// Training on the stub device, whose streams are threads: the bits of the CPU whatever rests how long, and no
// wait of the host.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/streams/stream_collectives.h"
#include "dear/stub_device/module.h"
#include "dear/stub_device/process_group.h"
#include "dear/stub_device/stub_device.h"
#include "dear/train/data_parallel.h"
#include "dear/train/testing/ranks.h"

namespace dear::stub_streams_test {
namespace {

using streams::Guard;
using train::testing::Batch;
using train::testing::rows;
using train::testing::run_all;

constexpr std::int64_t kInputs = 16;
constexpr int kRanks = 2;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(kInputs, 40));
    second = register_module("second", torch::nn::Linear(40, 24));
    head = register_module("head", torch::nn::Linear(24, 3));
    const torch::NoGradGuard no_grad;
    for (torch::Tensor tensor : parameters())
      tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  }
  torch::Tensor forward(torch::Tensor x) { return head(torch::tanh(second(torch::tanh(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, head{nullptr};
};
TORCH_MODULE(Net);

struct Setting {
  bool on_stub = true;
  std::string policy = "dear";
  Guard without = Guard::none;
};

// Rank 0's parameters after four steps. `waits`: of the host, in the last two of them.
std::vector<torch::Tensor> train(const Setting& setting, std::int64_t* waits = nullptr) {
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups;
  if (setting.on_stub) groups = stub_device::make_process_groups(kRanks);
  std::vector<torch::Tensor> result;
  run_all(kRanks, [&](int rank, const Group& group) {
    const Group beside = group.duplicate();
    const at::Device device = setting.on_stub ? stub_device::device(rank) : at::Device(at::kCPU);
    const c10::OptionalDeviceGuard guard(setting.on_stub ? std::optional(device) : std::nullopt);
    Net net;
    DataParallelOptions options{.policy = setting.policy, .buckets = given(Fusion::parse("2KiB"))};
    if (setting.on_stub) {
      stub_device::move(*net, device);
      options.streams = stream_collectives(groups[rank], device.type());
      options.without_guard = setting.without;
    }
    std::vector<Batch> batches;
    for (int step = 0; step < 4; ++step) {
      const Batch batch = rows(step, 2 * rank, 2, kInputs);
      batches.push_back({batch.inputs.to(device), batch.targets.to(device)});
    }
    torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
    DataParallel dp(*net, adamw, group, options);
    std::int64_t before = 0;
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {
        beside.barrier().wait();
        before = stub_device::host_waits();
        beside.barrier().wait();
      }
      torch::mse_loss(net->forward(batches[step].inputs), batches[step].targets).backward();
      dp.step();
    }
    beside.barrier().wait();
    if (rank == 0 && waits != nullptr) *waits = stub_device::host_waits() - before;
    beside.barrier().wait();
    dp.synchronize();
    if (rank == 0)
      for (const torch::Tensor& tensor : net->parameters()) result.push_back(tensor.detach().cpu().clone());
  });
  return result;
}

bool equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!torch::equal(a[i], b[i])) return false;
  return a.size() == b.size();
}

class OnTheStubDevice : public ::testing::Test {
 protected:
  void SetUp() override { stub_device::install(); }
  void TearDown() override { stub_device::reset(); }
};

TEST_F(OnTheStubDevice, EachPolicyComputesWhatItComputesOnTheCpuAndTheHostNeverWaits) {
  for (const std::string policy : {"dear", "dear-replicated", "wfbp", "serial"}) {
    const std::vector<torch::Tensor> expected = train({.on_stub = false, .policy = policy});
    std::int64_t waits = -1;
    EXPECT_TRUE(equal(train({.policy = policy}, &waits), expected)) << policy;
    EXPECT_EQ(waits, 0) << policy;
  }
}

TEST_F(OnTheStubDevice, WhateverStreamRestsTheBitsAreTheSame) {
  const std::vector<torch::Tensor> expected = train({.on_stub = false});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    stub_device::set_delays({.seed = seed, .largest = std::chrono::microseconds(100)});
    EXPECT_TRUE(equal(train({}), expected)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace dear::stub_streams_test
