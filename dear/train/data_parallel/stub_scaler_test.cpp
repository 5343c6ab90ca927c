// A loss scaler whose numbers stay on the stub device: steps that the device gives up change nothing, and the
// bits are those of the CPU, where the host decides.

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/_amp_update_scale.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/testing/stub_device/module.h"
#include "dear/testing/stub_device/process_group.h"
#include "dear/testing/stub_device/stub_device.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/streams/stream_collectives.h"

namespace dear::stub_scaler_test {
namespace {

using train::testing::Batch;
using train::testing::rows;
using train::testing::run_all;

constexpr std::int64_t kInputs = 16;
constexpr int kRanks = 2, kSteps = 6;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(kInputs, 40));
    head = register_module("head", torch::nn::Linear(40, 3));
    const torch::NoGradGuard no_grad;
    for (torch::Tensor tensor : parameters())
      tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  }
  torch::Tensor forward(torch::Tensor x) { return head(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, head{nullptr};
};
TORCH_MODULE(Net);

// A loss scale that halves where a step overflows and doubles after two that do not, as torch.amp.GradScaler.
struct Scaler {
  explicit Scaler(const at::Device& device)
      : scale(torch::full({1}, 64.0F, device)),
        growth(torch::zeros({1}, at::TensorOptions(device).dtype(torch::kInt))) {}
  void update(const torch::Tensor& nonfinite) {
    at::_amp_update_scale_(scale, growth, nonfinite, 2.0, 0.5, 2);
  }
  torch::Tensor scale, growth;
};

using Optimizers = std::unique_ptr<torch::optim::Optimizer> (*)(const std::vector<torch::Tensor>&);

std::unique_ptr<torch::optim::Optimizer> sgd(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(
      parameters, torch::optim::SGDOptions(0.05).momentum(0.9).dampening(0.1).weight_decay(0.01));
}
std::unique_ptr<torch::optim::Optimizer> adamw(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(1e-2));
}

struct Setting {
  bool on_stub = true;
  std::string policy = "dear";
  Optimizers optimizer = sgd;
  bool unscaled_first = true;  // else by step_unless()
};

struct Result {
  std::vector<torch::Tensor> parameters;  // of rank 0, and the scale
  std::int64_t waits = 0;                 // of the host, from the third step on
};

void take_step(DataParallel& dp, Scaler& scaler, bool unscaled_first) {
  const torch::Tensor inverse = scaler.scale.reciprocal();
  const torch::Tensor nonfinite = dp.unscale_gradients_by(unscaled_first ? inverse : torch::Tensor());
  dp.step_unless(nonfinite, unscaled_first ? torch::Tensor() : inverse);
  scaler.update(nonfinite);
}

// Overflows in steps 0, 2 and 4, on rank 1 alone.
Result train(const Setting& setting) {
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups;
  if (setting.on_stub) groups = stub_device::make_process_groups(kRanks);
  Result result;
  run_all(kRanks, [&](int rank, const Group& group) {
    const Group beside = group.duplicate();
    const at::Device device = setting.on_stub ? stub_device::device(rank) : at::Device(at::kCPU);
    const c10::OptionalDeviceGuard guard(setting.on_stub ? std::optional(device) : std::nullopt);
    Net net;
    DataParallelOptions options{.policy = setting.policy, .buckets = given(Fusion::parse("2KiB"))};
    if (setting.on_stub) {
      stub_device::move(*net, device);
      options.streams = stream_collectives(groups[rank], device.type());
    }
    std::vector<Batch> batches;
    for (int step = 0; step < kSteps; ++step) {
      const Batch batch = rows(step, 2 * rank, 2, kInputs);
      batches.push_back({batch.inputs.to(device), batch.targets.to(device)});
    }
    const torch::Tensor infinity = torch::full({}, std::numeric_limits<float>::infinity(), device);
    const auto optimizer = setting.optimizer(net->parameters());
    DataParallel dp(*net, *optimizer, group, options);
    Scaler scaler(device);
    std::int64_t before = 0;
    for (int step = 0; step < kSteps; ++step) {
      if (step == 2) {
        beside.barrier().wait();
        before = stub_device::host_waits();
        beside.barrier().wait();
      }
      torch::Tensor loss =
          torch::mse_loss(net->forward(batches[step].inputs), batches[step].targets) * scaler.scale;
      if (step % 2 == 0 && rank == 1) loss = loss * infinity;
      loss.sum().backward();
      take_step(dp, scaler, setting.unscaled_first);
    }
    beside.barrier().wait();
    if (rank == 0) result.waits = stub_device::host_waits() - before;
    beside.barrier().wait();
    dp.synchronize();
    if (rank != 0) return;
    for (const torch::Tensor& tensor : net->parameters())
      result.parameters.push_back(tensor.detach().cpu().clone());
    result.parameters.push_back(scaler.scale.cpu());
  });
  return result;
}

class AScalerOnTheStubDevice : public ::testing::Test {
 protected:
  void SetUp() override { stub_device::install(); }
  void TearDown() override { stub_device::reset(); }

  static Result expect_as_on_the_cpu(Setting setting) {
    const Result found = train(setting);
    setting.on_stub = false;
    const Result expected = train(setting);
    for (std::size_t i = 0; i < expected.parameters.size(); ++i)
      EXPECT_TRUE(torch::equal(found.parameters[i], expected.parameters[i]))
          << setting.policy << ", tensor " << i;
    return found;
  }
};

TEST_F(AScalerOnTheStubDevice, GivesStepsUpWithoutAWaitOfTheHost) {
  for (const bool unscaled_first : {true, false})
    for (const std::string policy : {"dear", "wfbp"})
      EXPECT_EQ(expect_as_on_the_cpu({.policy = policy, .unscaled_first = unscaled_first}).waits, 0);
}

TEST_F(AScalerOnTheStubDevice, WaitsForAnOptimiserThatCountsItsSteps) {
  EXPECT_GT(expect_as_on_the_cpu({.optimizer = adamw}).waits, 0);
}

}  // namespace
}  // namespace dear::stub_scaler_test
