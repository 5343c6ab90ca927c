// DeAR's side of bench/ddp: trains a multi-layer perceptron with DataParallel. ddp_mlp.py is the other side,
// and makes the same parameters and samples by the same arithmetic.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/init.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear {
namespace {

struct Options {
  int layers = 12;
  int width = 1024;
  int batch = 128;
  int steps = 30;
  int warm_up = 10;
  int alone = 10;
  int threads = 1;
  std::string optimizer = "sgd";
  std::string policy = "dear";
  std::string fusion = "layer";
  std::string backend = "mpi";
  std::string json;
  std::string parameters;
};

constexpr int kBatches = 4;  // different ones, in turn
constexpr std::uint32_t kInputs = 1'000'000;
constexpr std::uint32_t kTargets = 2'000'000;

// Elements of [-scale, scale): a hash of 32 bits, of which 24 become a fraction that fp32 holds exactly.
torch::Tensor hashed(std::uint32_t seed, std::vector<std::int64_t> shape, float scale) {
  torch::Tensor tensor = torch::empty(shape);
  auto* const values = tensor.data_ptr<float>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    std::uint32_t hash = static_cast<std::uint32_t>(i) * 2654435761U + seed * 40503U + 12345U;
    hash ^= hash >> 16;
    hash *= 2246822519U;
    hash ^= hash >> 13;
    values[i] = scale * (static_cast<float>(static_cast<std::int32_t>(hash >> 8) - (1 << 23)) / (1 << 23));
  }
  return tensor;
}

torch::nn::Sequential make_model(const Options& options) {
  torch::nn::Sequential model;
  for (int layer = 0; layer < options.layers; ++layer) {
    if (layer > 0) model->push_back(torch::nn::ReLU());
    model->push_back(torch::nn::Linear(options.width, options.width));
  }
  const torch::NoGradGuard no_grad;
  std::uint32_t seed = 0;
  for (torch::Tensor& parameter : model->parameters()) {
    parameter.copy_(hashed(seed++, parameter.sizes().vec(), 0.0625F));
  }
  return model;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Options& options,
                                                        const torch::nn::Sequential& model) {
  if (options.optimizer == "adamw") {
    return std::make_unique<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-3));
  }
  return std::make_unique<torch::optim::SGD>(model->parameters(),
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

struct Samples {
  torch::Tensor inputs;
  torch::Tensor targets;
};

std::vector<Samples> make_samples(const Options& options, int rank) {
  std::vector<Samples> samples;
  for (int i = 0; i < kBatches; ++i) {
    const auto seed = static_cast<std::uint32_t>(rank * kBatches + i);
    samples.push_back({.inputs = hashed(kInputs + seed, {options.batch, options.width}, 1),
                       .targets = hashed(kTargets + seed, {options.batch, options.width}, 1)});
  }
  return samples;
}

torch::Tensor loss_of(torch::nn::Sequential& model, const Samples& samples) {
  return torch::mse_loss(model->forward(samples.inputs), samples.targets);
}

struct Computation {
  std::vector<double> forward;
  std::vector<double> backward;
};

// Is of a model that nobody reduces.
Computation compute_alone(const Options& options, const std::vector<Samples>& samples) {
  torch::nn::Sequential model = make_model(options);
  Computation seconds;
  for (int step = 0; step < options.alone; ++step) {
    const double begin = now_seconds();
    const torch::Tensor loss = loss_of(model, samples[static_cast<std::size_t>(step % kBatches)]);
    const double between = now_seconds();
    loss.backward();
    seconds.forward.push_back(between - begin);
    seconds.backward.push_back(now_seconds() - between);
    model->zero_grad(false);
  }
  return seconds;
}

void write_parameters(torch::nn::Sequential& model, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  for (const torch::Tensor& parameter : model->parameters()) {
    const torch::Tensor whole = parameter.detach().contiguous();
    file.write(reinterpret_cast<const char*>(whole.data_ptr<float>()),
               static_cast<std::streamsize>(whole.nbytes()));
  }
  if (!file.flush()) throw ConfigError(fmt::format("cannot write the parameters to {}", path));
}

void run(const Options& options) {
  at::set_num_threads(options.threads);
  Group group = init({.backend = options.backend});
  const std::vector<Samples> samples = make_samples(options, group.rank());
  group.barrier();
  const Computation alone = compute_alone(options, samples);
  torch::nn::Sequential model = make_model(options);
  const auto optimizer = make_optimizer(options, model);
  DataParallel parallel(*model, *optimizer, group,
                        {.policy = options.policy, .buckets = given(Fusion::parse(options.fusion))});
  group.barrier();
  std::vector<double> steps;
  double loss = 0;
  for (int step = 0; step < options.warm_up + options.steps; ++step) {
    const double begin = now_seconds();
    const torch::Tensor now = loss_of(model, samples[static_cast<std::size_t>(step % kBatches)]);
    now.backward();
    parallel.step();
    if (step >= options.warm_up) steps.push_back(now_seconds() - begin);
    loss = now.item<double>();
  }
  parallel.synchronize();
  write_parameters(model, fmt::format("{}.{}", options.parameters, group.rank()));
  if (group.rank() == 0) {
    std::ofstream file(options.json);
    file << fmt::format(
        "{{\"torch\": \"{}\", \"threads\": {}, \"ranks\": {}, \"loss\": {:.9g}, \"buckets\": {}, "
        "\"forward\": [{}], "
        "\"backward\": [{}], \"steps\": [{}]}}\n",
        TORCH_VERSION, at::get_num_threads(), group.size(), loss, parallel.statistics().buckets,
        fmt::join(alone.forward, ", "), fmt::join(alone.backward, ", "), fmt::join(steps, ", "));
    if (!file.flush()) throw ConfigError(fmt::format("cannot write the times to {}", options.json));
  }
  group.barrier();
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("Trains a multi-layer perceptron with DataParallel, for bench/ddp");
  dear::Options options;
  app.add_option("--layers", options.layers);
  app.add_option("--width", options.width);
  app.add_option("--batch", options.batch);
  app.add_option("--steps", options.steps, "that count");
  app.add_option("--warm-up", options.warm_up, "steps before them");
  app.add_option("--alone", options.alone, "forwards and backwards without communication, before all steps");
  app.add_option("--threads", options.threads);
  app.add_option("--optimizer", options.optimizer)->check(CLI::IsMember({"sgd", "adamw"}));
  app.add_option("--policy", options.policy);
  app.add_option("--fusion", options.fusion);
  app.add_option("--backend", options.backend);
  app.add_option("--json", options.json, "gets times")->required();
  app.add_option("--parameters", options.parameters, "gets, with .RANK behind it, the trained parameters")
      ->required();
  CLI11_PARSE(app, argc, argv);
  try {
    dear::run(options);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_ddp_mlp: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
