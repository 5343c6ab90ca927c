// Several models with optimisers of their own in one world and on one group, in turns: a GAN.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::several_models_test {
namespace {

using ::testing::HasSubstr;
using train::testing::message_of;
using train::testing::run_all;

constexpr std::int64_t kNoise = 5;
constexpr std::int64_t kValues = 6;
constexpr std::int64_t kRows = 3;  // of a rank

// In double precision.
struct NetImpl : torch::nn::Module {
  NetImpl(std::int64_t inputs, std::int64_t outputs) {
    first = register_module("first", torch::nn::Linear(inputs, 12));
    last = register_module("last", torch::nn::Linear(12, outputs));
    to(torch::kDouble);
    for (torch::Tensor& tensor : parameters())
      tensor.detach().copy_(0.4 * torch::sin(torch::arange(1, 1 + tensor.numel())).view_as(tensor));
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

torch::Tensor rows(int step, int first_rank, int ranks, std::int64_t columns, double frequency) {
  const auto row =
      torch::arange(first_rank * kRows, (first_rank + ranks) * kRows, torch::kDouble).unsqueeze(1);
  return torch::sin(frequency * row + 0.7 * torch::arange(columns, torch::kDouble) + 0.3 * step);
}

// How a program keeps the generator's pass out of the discriminator's gradients.
enum class Apart { zero_grad, no_sync, frozen };

struct Gan {
  Net generator{kNoise, kValues}, discriminator{kValues, 1};
  torch::optim::Adam for_generator{generator->parameters(), torch::optim::AdamOptions(0.02)};
  torch::optim::Adam for_discriminator{discriminator->parameters(), torch::optim::AdamOptions(0.01)};

  // With the gradient penalty of WGAN-GP (Gulrajani et al. 2017, arXiv 1704.00028).
  torch::Tensor loss_of_discriminator(int step, int first_rank, int ranks) {
    const torch::Tensor fake = generator->forward(rows(step, first_rank, ranks, kNoise, 1.3)).detach();
    const torch::Tensor real = rows(step, first_rank, ranks, kValues, 0.9);
    const torch::Tensor between = (0.3 * real + 0.7 * fake).requires_grad_();
    const torch::Tensor slope =
        torch::autograd::grad({discriminator->forward(between).sum()}, {between}, {}, true, true)[0];
    return discriminator->forward(fake).mean() - discriminator->forward(real).mean() +
           10 * (slope.norm(2, 1) - 1).pow(2).mean();
  }
  torch::Tensor loss_of_generator(int step, int first_rank, int ranks) {
    return -discriminator->forward(generator->forward(rows(step, first_rank, ranks, kNoise, 1.7))).mean();
  }
  [[nodiscard]] std::vector<torch::Tensor> values() const {
    std::vector<torch::Tensor> all;
    for (const Net& net : {generator, discriminator})
      for (const torch::Tensor& tensor : net->parameters()) all.push_back(tensor.detach().clone());
    return all;
  }
};

constexpr int kSteps = 5;

std::vector<torch::Tensor> train_plainly(int ranks) {
  Gan gan;
  for (int step = 0; step < kSteps; ++step) {
    gan.discriminator->zero_grad();
    gan.loss_of_discriminator(step, 0, ranks).backward();
    gan.for_discriminator.step();
    gan.generator->zero_grad();
    gan.loss_of_generator(step, 0, ranks).backward();
    gan.for_generator.step();
  }
  return gan.values();
}

class InTurns : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(InTurns, AreAsInOneProcess) {
  const auto& [policy, ranks] = GetParam();
  const std::vector<torch::Tensor> expected = train_plainly(ranks);
  for (const Apart apart : {Apart::zero_grad, Apart::no_sync, Apart::frozen}) {
    if (policy == "dear-eager" && apart == Apart::zero_grad) continue;  // it gives no step up
    run_all(ranks, [&](int rank, Group group) {
      Gan gan;
      const DataParallelOptions options{.policy = policy, .buckets = given(Fusion::parse("layer"))};
      DataParallel generator(*gan.generator, gan.for_generator, group, options);
      DataParallel discriminator(*gan.discriminator, gan.for_discriminator, group, options);
      for (int step = 0; step < kSteps; ++step) {
        gan.discriminator->zero_grad();
        gan.loss_of_discriminator(step, rank, 1).backward();
        discriminator.step();
        const auto freeze = [&](bool on) {
          for (torch::Tensor& tensor : gan.discriminator->parameters()) tensor.requires_grad_(!on);
        };
        if (apart == Apart::no_sync) {
          const auto guard = discriminator.no_sync();
          gan.loss_of_generator(step, rank, 1).backward();
        } else {
          if (apart == Apart::frozen) freeze(true);
          gan.loss_of_generator(step, rank, 1).backward();
          if (apart == Apart::frozen) freeze(false);
        }
        generator.step();
      }
      gan.discriminator->zero_grad();
      generator.synchronize();
      if (apart == Apart::zero_grad) discriminator.discard_step();
      discriminator.synchronize();
      const std::vector<torch::Tensor> found = gan.values();
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-9, 1e-9))
            << "tensor " << i << ", " << static_cast<int>(apart);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, InTurns,
                         ::testing::Combine(::testing::Values("serial", "wfbp", "dear-replicated", "dear",
                                                              "dear-eager"),
                                            ::testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           std::erase(name, '-');
                           return name + "On" + std::to_string(std::get<1>(info.param));
                         });

TEST(SeveralModels, MayBeOnTheWireAtOnceOnOneGroup) {
  run_all(3, [&](int rank, Group group) {
    std::vector<Net> nets;
    std::vector<std::unique_ptr<torch::optim::SGD>> optimizers;
    std::vector<std::unique_ptr<DataParallel>> models;
    for (int i = 0; i < 3; ++i) {
      nets.emplace_back(kNoise, kValues);
      optimizers.push_back(
          std::make_unique<torch::optim::SGD>(nets[i]->parameters(), torch::optim::SGDOptions(0.1)));
      models.push_back(std::make_unique<DataParallel>(
          *nets[i], *optimizers[i], group, DataParallelOptions{.buckets = given(Fusion::parse("layer"))}));
    }
    for (int step = 0; step < 20; ++step) {
      for (int i = 0; i < 3;
           ++i) {  // one that changes from rank to rank and step to step gets a forward between
        nets[(i + rank + step) % 3]->forward(rows(step, 0, 1, kNoise, 1));
        nets[i]->forward(rows(step, rank, 1, kNoise, 1)).square().mean().backward();
        models[i]->step();
      }
    }
    for (int i = 0; i < 3; ++i) {
      models[i]->synchronize();
      for (std::size_t t = 0; t < nets[i]->parameters().size(); ++t)
        EXPECT_TRUE(torch::equal(nets[i]->parameters()[t], nets[0]->parameters()[t])) << i << " " << t;
    }
  });
}

TEST(SeveralModels, OneParameterHasOneOptimiser) {
  run_all(2, [](int, Group group) {
    Net net(kNoise, kValues);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::SGD other(net->last->parameters(), torch::optim::SGDOptions(0.1));
    {
      DataParallel dp(*net, sgd, group, {.buckets = given(Fusion())});
      EXPECT_THAT(message_of<ConfigError>(
                      [&] { DataParallel(*net->last, other, group, {.buckets = given(Fusion())}); }),
                  AllOf(HasSubstr("'weight'"), HasSubstr("another DataParallel")));
    }
    DataParallel(*net->last, other, group, {.buckets = given(Fusion())}).synchronize();
  });
}

}  // namespace
}  // namespace dear::several_models_test
