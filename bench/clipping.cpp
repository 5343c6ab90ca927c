// What clipping by the global norm costs a step, on the ranks of a launcher: steps without it and with it in
// turns, of one model each. The norm is checked against that of the whole gradient. Run it on an idle
// machine:
//
//   dear launch -n 2 build/release/bench/bench_clipping

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/backends/init.h"
#include "dear/base/deadline.h"
#include "dear/base/error.h"
#include "dear/base/spread.h"
#include "dear/train/data_parallel.h"

namespace dear {
namespace {

struct Options {
  int layers = 12;
  int width = 256;
  int batch = 64;
  int steps = 200;
  std::string policy = "dear";
  std::string fusion = "1MiB";
};

torch::nn::Sequential make_model(const Options& options) {
  torch::manual_seed(3);
  torch::nn::Sequential model;
  for (int layer = 0; layer < options.layers; ++layer) {
    if (layer > 0) model->push_back(torch::nn::ReLU());
    model->push_back(torch::nn::Linear(options.width, options.width));
  }
  return model;
}

struct Rival {
  Rival(const Options& options, const Group& group)
      : model(make_model(options)),
        optimizer(model->parameters(), torch::optim::AdamWOptions(1e-4)),
        parallel(*model, optimizer, group,
                 {.policy = options.policy, .buckets = given(Fusion::parse(options.fusion))}) {}
  void backward(const torch::Tensor& inputs) { model->forward(inputs).square().mean().backward(); }
  torch::nn::Sequential model;
  torch::optim::AdamW optimizer;
  DataParallel parallel;
  std::vector<double> seconds, in_clipping;
};

// Of the mean gradient of all ranks, whose samples every rank can make.
double norm_of_all(const Options& options, const std::vector<torch::Tensor>& samples) {
  torch::nn::Sequential model = make_model(options);
  for (const torch::Tensor& inputs : samples)
    (model->forward(inputs).square().mean() / static_cast<double>(samples.size())).backward();
  double sum = 0;
  for (const torch::Tensor& tensor : model->parameters())
    sum += tensor.grad().to(torch::kFloat64).square().sum().item<double>();
  return std::sqrt(sum);
}

bool run(const Options& options) {
  at::set_num_threads(1);
  Group group = init();
  Rival plain(options, group.duplicate());
  Rival clipped(options, group.duplicate());
  std::vector<torch::Tensor> samples;
  for (int rank = 0; rank < group.size(); ++rank) {
    torch::manual_seed(100 + rank);
    samples.push_back(torch::randn({options.batch, options.width}));
  }
  bool right = true;
  for (int step = 0; step < options.steps; ++step) {
    for (Rival* rival : {step % 2 == 0 ? &plain : &clipped, step % 2 == 0 ? &clipped : &plain}) {
      group.barrier().wait();
      const double begin = now_seconds();
      rival->backward(samples[static_cast<std::size_t>(group.rank())]);
      const double between = now_seconds();
      if (rival == &clipped) {
        const double norm = rival->parallel.clip_gradients_by_norm(1.0);
        if (step == 0) right = std::abs(norm / norm_of_all(options, samples) - 1) < 1e-5;
      }
      const double after = now_seconds();
      rival->parallel.step();
      rival->parallel.synchronize();
      rival->seconds.push_back(now_seconds() - begin);
      rival->in_clipping.push_back(after - between);
    }
  }
  std::vector<double> small;
  for (int i = 0; i < options.steps; ++i) {
    const Buffer buffer = group.allocate(64 * group.size());
    group.barrier().wait();
    const double begin = now_seconds();
    group.perform({.collective = Collective::all_gather,
                   .view = {.buffer = buffer, .count = 64 * group.size(), .dtype = DType::u8}});
    small.push_back(now_seconds() - begin);
  }
  if (group.rank() == 0) {
    double load[1] = {0};
    getloadavg(load, 1);
    std::vector<double> ratios;
    for (std::size_t i = 10; i < plain.seconds.size(); ++i)
      ratios.push_back(clipped.seconds[i] / plain.seconds[i]);
    const Quartiles ratio = quartiles_of(ratios);
    fmt::print(
        "load {:.2f}, {} ranks, policy {}: a step {:.3f} ms, with clipping {:.3f} ms (ratio {:.3f}, {:.3f} "
        "to "
        "{:.3f}); in the call {:.1f} us, an all-gather of 64 bytes a rank {:.1f} us; norm {}\n",
        load[0], group.size(), options.policy, 1e3 * spread_of(plain.seconds).median,
        1e3 * spread_of(clipped.seconds).median, ratio.median, ratio.first, ratio.third,
        1e6 * spread_of(clipped.in_clipping).median, 1e6 * spread_of(small).median,
        right ? "right" : "WRONG");
  }
  return right;
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("What clipping by the global norm costs a step");
  dear::Options options;
  app.add_option("--layers", options.layers)->capture_default_str();
  app.add_option("--width", options.width)->capture_default_str();
  app.add_option("--batch", options.batch)->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--policy", options.policy)->capture_default_str();
  app.add_option("--fusion", options.fusion)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return dear::run(options) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const dear::Error& error) {
    fmt::print(stderr, "bench_clipping: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
