// counted_samples FOLDER KIND: trains with dear::Elastic, and counts how often each sample is used in a
// parameter of its own.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/membership/member.h"
#include "dear/base/vocabulary/error.h"
#include "dear/train/elastic/elastic.h"

namespace {

constexpr std::int64_t kSamples = 96, kBatch = 12;
constexpr int kEpochs = 3;

struct Counted : torch::nn::Module {
  Counted() {
    net = register_module("net", torch::nn::Linear(4, 1));
    net->to(torch::kFloat64);
    uses = register_parameter("uses", torch::zeros({kSamples}, torch::kFloat64));
  }
  torch::nn::Linear net{nullptr};
  torch::Tensor uses;
};

// Rank 1 fails after ten steps, once. Epoch 1 is without it. Where another process takes its place, the job
// waits for epoch 2, which has that.
void fail(const std::string& folder, const std::string& kind, const dear::Elastic& elastic) {
  const std::string marked = folder + "/failed";
  if (elastic.steps() == 10 && elastic.rank() == 1 && kind != "calm" && !std::filesystem::exists(marked)) {
    std::ofstream{marked};
    ::kill(::getpid(), SIGKILL);
  }
  if (elastic.steps() != 14 || kind != "replaced") return;
  const dear::membership::Member self(std::getenv("DEAR_MEMBERSHIP"), std::atoi(std::getenv("DEAR_MEMBER")));
  while (self.roster().epoch < 2) ::usleep(20'000);
}

int train(const std::string& folder, const std::string& kind) {
  torch::manual_seed(1);
  Counted model;
  const torch::Tensor inputs = torch::sin(torch::arange(4 * kSamples, torch::kFloat64)).view({kSamples, 4});
  torch::optim::SGD optimizer({model.uses}, torch::optim::SGDOptions(1.0));
  auto options = std::make_unique<torch::optim::SGDOptions>(0.1);
  options->momentum(0.9);
  optimizer.add_param_group(torch::optim::OptimizerParamGroup(model.net->parameters(), std::move(options)));
  dear::ElasticOptions of{.samples = kSamples, .batch = kBatch, .epochs = kEpochs};
  if (kind == "replaced") of.training.policy = "dear";
  dear::Elastic elastic(model, optimizer, of);
  elastic.run([&](const torch::Tensor& indices) {
    (model.net->forward(inputs.index({indices})).square().mean() + model.uses.index({indices}).mean())
        .backward();
    fail(folder, kind, elastic);
  });
  const torch::Tensor off = (model.uses * kBatch + kEpochs).abs().max();
  std::cout << fmt::format("ranks {} steps {} off by {:.0e} bias {:a}\n", elastic.ranks(), elastic.steps(),
                           off.item<double>() < 1e-9 ? 0.0 : off.item<double>(),
                           model.net->bias.item<double>())
            << std::flush;
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return count == 3 ? train(words[1], words[2]) : 2;
  } catch (const dear::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
