// What the norms of LAMB cost a step, on the ranks of a launcher: steps of AdamW and of LAMB in turns, of one
// model each, and of LAMB where every rank updates everything (dear-replicated), which exchanges nothing. All
// ranks must end with the same parameters, and LAMB with the same under both policies. Run it on an idle
// machine:
//
//   dear launch -n 2 build/release/bench/bench_tensor_norms

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
#include "dear/optim/lamb.h"
#include "dear/train/data_parallel.h"

namespace dear {
namespace {

struct Options {
  int layers = 12;
  int width = 256;
  int batch = 64;
  int steps = 200;
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
  Rival(std::string rival, const Options& options, const std::string& policy, bool lamb, const Group& group)
      : name(std::move(rival)), model(make_model(options)) {
    if (lamb) {
      optimizer = std::make_unique<LAMB>(model->parameters(), LAMBOptions(1e-3));
    } else {
      optimizer =
          std::make_unique<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-4));
    }
    parallel = std::make_unique<DataParallel>(
        *model, *optimizer, group,
        DataParallelOptions{.policy = policy, .buckets = given(Fusion::parse(options.fusion))});
  }
  [[nodiscard]] double parameters() const {
    double sum = 0;
    for (const torch::Tensor& tensor : model->parameters())
      sum += tensor.detach().to(torch::kFloat64).sum().item<double>();
    return sum;
  }
  std::string name;
  torch::nn::Sequential model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::unique_ptr<DataParallel> parallel;
  std::vector<double> seconds;
};

bool run(const Options& options) {
  at::set_num_threads(1);
  Group group = init();
  std::vector<std::unique_ptr<Rival>> rivals;
  rivals.push_back(std::make_unique<Rival>("AdamW", options, "dear", false, group.duplicate()));
  rivals.push_back(std::make_unique<Rival>("LAMB", options, "dear", true, group.duplicate()));
  rivals.push_back(
      std::make_unique<Rival>("AdamW, replicated", options, "dear-replicated", false, group.duplicate()));
  rivals.push_back(
      std::make_unique<Rival>("LAMB, replicated", options, "dear-replicated", true, group.duplicate()));
  torch::manual_seed(100 + group.rank());
  const torch::Tensor inputs = torch::randn({options.batch, options.width});
  for (int step = 0; step < options.steps; ++step) {
    for (std::size_t turn = 0; turn < rivals.size(); ++turn) {
      Rival& rival = *rivals[(turn + static_cast<std::size_t>(step)) % rivals.size()];
      group.barrier().wait();
      const double begin = now_seconds();
      rival.model->forward(inputs).square().mean().backward();
      rival.parallel->step();
      rival.parallel->synchronize();
      rival.seconds.push_back(now_seconds() - begin);
    }
  }
  const bool right = rivals[1]->parameters() == rivals[3]->parameters();
  if (group.rank() != 0) return right;
  double load[1] = {0};
  getloadavg(load, 1);
  fmt::print("load {:.2f}, {} ranks, {} layers of width {}, fusion {}; LAMB's parameters are {}\n", load[0],
             group.size(), options.layers, options.width, options.fusion,
             right ? "the same under both policies" : "WRONG");
  for (std::size_t i = 0; i < rivals.size(); ++i) {
    const std::vector<double>& base = rivals[i / 2 * 2]->seconds;
    std::vector<double> more;
    for (std::size_t step = 10; step < base.size(); ++step)
      more.push_back(rivals[i]->seconds[step] - base[step]);
    const Quartiles beyond = quartiles_of(more);
    fmt::print("{:18} a step {:8.3f} ms, beyond AdamW {:8.1f} us ({:.1f} to {:.1f})\n", rivals[i]->name,
               1e3 * spread_of(rivals[i]->seconds).median, 1e6 * beyond.median, 1e6 * beyond.first,
               1e6 * beyond.third);
  }
  return right;
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("What the norms of LAMB cost a step");
  dear::Options options;
  app.add_option("--layers", options.layers)->capture_default_str();
  app.add_option("--width", options.width)->capture_default_str();
  app.add_option("--batch", options.batch)->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--fusion", options.fusion)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return dear::run(options) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const dear::Error& error) {
    fmt::print(stderr, "bench_tensor_norms: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
