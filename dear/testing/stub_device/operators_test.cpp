#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "dear/testing/stub_device/module.h"
#include "dear/testing/stub_device/stub_device.h"

namespace dear::stub_device::operators_test {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

class Operators : public ::testing::Test {
 protected:
  void SetUp() override { install(); }
  void TearDown() override { reset(); }
};

torch::Tensor numbers(std::vector<std::int64_t> sizes, double phase = 0) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return torch::sin(phase + torch::arange(count, torch::kFloat32)).view(sizes);
}

using Net = torch::nn::Sequential;
struct Case {
  std::string name;
  std::function<Net()> make;
  std::function<torch::Tensor()> input;
};

std::vector<Case> cases() {
  namespace nn = torch::nn;
  return {
      {"Linear", [] { return Net(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 3)); },
       [] { return numbers({4, 6}); }},
      {"Norms",
       [] {
         return Net(nn::Linear(6, 8), nn::LayerNorm(nn::LayerNormOptions({8})), nn::GELU(), nn::Linear(8, 8),
                    nn::ReLU());
       },
       [] { return numbers({5, 6}); }},
      {"Convolutions",
       [] {
         return Net(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)), nn::BatchNorm2d(4), nn::SiLU(),
                    nn::Conv2d(nn::Conv2dOptions(4, 2, 3).stride(2).bias(false)), nn::Flatten());
       },
       [] { return numbers({2, 3, 7, 7}); }},
      {"Embedding", [] { return Net(nn::Embedding(11, 6), nn::Linear(6, 4), nn::Softmax(-1)); },
       [] { return torch::arange(12).remainder(11).view({3, 4}); }},
  };
}

// Trained on the CPU and on the stub, the same bits; the CPU chooses among algorithms of convolution by more
// than shapes.
TEST_F(Operators, TrainAsTheCpu) {
  for (const Case& tried : cases()) {
    const auto train = [&](torch::Device on, bool adamw) {
      torch::manual_seed(5);
      Net net = tried.make();
      if (!on.is_cpu()) move(*net, on);
      std::unique_ptr<torch::optim::Optimizer> optimizer;
      if (adamw) {
        optimizer =
            std::make_unique<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-2));
      } else {
        optimizer = std::make_unique<torch::optim::SGD>(net->parameters(),
                                                        torch::optim::SGDOptions(0.1).momentum(0.9));
      }
      const torch::Tensor input = tried.input().to(on);
      for (int step = 0; step < 3; ++step) {
        optimizer->zero_grad();
        net->forward(input).square().mean().backward();
        torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
        optimizer->step();
      }
      std::vector<torch::Tensor> all = net->parameters();
      for (torch::Tensor& buffer : net->buffers()) all.push_back(buffer);
      for (torch::Tensor& tensor : all) tensor = tensor.detach().cpu();
      return all;
    };
    for (const bool adamw : {false, true}) {
      if (adamw && tried.name == "Convolutions") continue;  // makes steps of what is zero but for rounding
      const std::vector<torch::Tensor> expected = train(torch::kCPU, adamw), found = train(device(1), adamw);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(tried.name == "Convolutions" ? torch::allclose(found[i], expected[i], 0, 1e-6)
                                                 : torch::equal(found[i], expected[i]))
            << tried.name << ", tensor " << i << ", apart "
            << (found[i] - expected[i]).abs().max().item<float>();
    }
  }
}

TEST_F(Operators, RanksAsThreadsTrainWithoutWaits) {
  std::vector<std::thread> ranks;
  std::vector<torch::Tensor> results(4);
  const std::int64_t waits = host_waits();
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      const c10::DeviceGuard guard(device(rank));
      torch::Tensor weight = torch::full({8, 8}, 0.1, device(rank)).set_requires_grad(true);
      const torch::Tensor input = torch::full({2, 8}, 0.5, device(rank));
      for (int step = 0; step < 5; ++step) {
        weight.mutable_grad().reset();
        torch::tanh(input.mm(weight)).square().mean().backward();
        const torch::NoGradGuard no_grad;
        weight.sub_(weight.grad(), 0.1);
      }
      results[static_cast<std::size_t>(rank)] = weight.detach();
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(host_waits(), waits);
  for (const torch::Tensor& result : results) EXPECT_TRUE(torch::equal(result.cpu(), results[0].cpu()));
}

TEST_F(Operators, ViewsShareMemory) {
  const torch::Tensor flat = torch::zeros({24}, device(0));
  flat.narrow(0, 6, 6).view({2, 3}).t().select(0, 1).fill_(1);
  flat.as_strided({2, 2}, {12, 6}, 0).add_(2);
  EXPECT_EQ(flat.sum().item<float>(), 2 + 8);
  EXPECT_EQ(flat[7].item<float>(), 1);
  EXPECT_EQ(flat.expand({3, 24}).storage().data(), flat.storage().data());
}

TEST_F(Operators, OutputsGetTheirSize) {
  torch::Tensor out = torch::empty({0}, device(0));
  torch::add_out(out, torch::ones({2, 3}, device(0)), torch::ones({3}, device(0)));
  EXPECT_EQ(out.sum().item<float>(), 12);
  torch::Tensor grown = torch::ones({2}, device(0));
  grown.resize_({1000});
  EXPECT_EQ(grown[1].item<float>(), 1);
  EXPECT_EQ(torch::arange(5, torch::TensorOptions(device(2)))[4].item<float>(), 4);
}

TEST_F(Operators, ScalarsOfTheCpuAreReadAtOnce) {
  torch::Tensor scalar = torch::full({}, 2.0);
  torch::Tensor x = torch::ones({3}, device(0));
  {
    const Held held(c10::Stream(c10::Stream::DEFAULT, device(0)));
    x = x * scalar;
    scalar.fill_(9);
  }
  EXPECT_EQ(x.sum().item<float>(), 6);
  EXPECT_EQ(torch::add(torch::ones({2}, torch::TensorOptions(device(0)).dtype(torch::kInt)), 1).scalar_type(),
            torch::kInt);
  EXPECT_THROW((void)torch::add(x, torch::ones({3})), c10::Error);
  EXPECT_THROW((void)torch::add(x, torch::ones({3}, device(1))), c10::Error);
}

TEST_F(Operators, ShapesMayDependOnValues) {
  const torch::Tensor x = torch::arange(6, torch::TensorOptions(device(0)).dtype(torch::kFloat32));
  EXPECT_EQ(x.masked_select(x > 2).sum().item<float>(), 12);
  EXPECT_EQ(x.index({x > 3}).numel(), 2);
  EXPECT_EQ(x.index({torch::tensor({1, 1, 2}).to(device(0))}).sum().item<float>(), 4);
  EXPECT_TRUE(torch::equal(x, x.clone()));
}

TEST_F(Operators, RandomNumbersDependOnSeedAndPlaceAlone) {
  const auto draw = [](int on) {
    torch::manual_seed(3);
    const torch::Tensor x = torch::rand({5}, device(on)),
                        y = torch::dropout(torch::ones({64}, device(on)), 0.5, true);
    return torch::cat({x, torch::randn({5}, device(on)), y}).cpu();
  };
  const torch::Tensor first = draw(0);
  set_delays({.seed = 1, .largest = std::chrono::microseconds(100)});
  EXPECT_TRUE(torch::equal(draw(0), first));
  EXPECT_TRUE(torch::equal(draw(5), first));
  draw(0);
  EXPECT_FALSE(torch::equal(torch::rand({5}, device(0)).cpu(), first.narrow(0, 0, 5)));
}

TEST_F(Operators, RunInLowerPrecisionUnderAutocast) {
  at::autocast::set_autocast_dtype(kType, torch::kBFloat16);
  at::autocast::set_autocast_enabled(kType, true);
  const torch::Tensor weight = torch::full({3, 4}, 0.5, torch::TensorOptions(device(0)).requires_grad(true));
  const torch::Tensor out = torch::linear(torch::ones({2, 4}, device(0)), weight);
  const torch::Tensor loss = torch::mse_loss(out, torch::zeros({2, 3}, device(0)));
  at::autocast::set_autocast_enabled(kType, false);
  at::autocast::clear_cache();
  EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  loss.backward();
  EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat32);
  EXPECT_NEAR(weight.grad().sum().item<float>(), 16, 0.2);  // of 12 elements, each 2 * 2 * 2 / 6, rounded
}

TEST_F(Operators, CopyBetweenDevices) {
  const torch::Tensor x = torch::full({4}, 3.0, device(0));
  EXPECT_EQ(x.to(device(1)).add_(1).to(device(2), torch::kDouble).sum().item<double>(), 16);
}

}  // namespace
}  // namespace dear::stub_device::operators_test
