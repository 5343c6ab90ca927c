// What watching costs a step, on the ranks of a launcher: steps of one model without it, with a callback for
// metrics, with a file of them and with a hook that looks at every bucket, in turns. Parameters are checked
// to be the same bits. Run it on an idle machine:
//
//   dear launch -n 2 build/release/bench/bench_watching

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
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
#include "dear/train/watch.h"

namespace dear {
namespace {

struct Options {
  int layers = 12;
  int width = 256;
  int batch = 64;
  int steps = 300;
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
  Rival(std::string named, const Options& options, const Group& group, DataParallelOptions how)
      : name(std::move(named)),
        model(make_model(options)),
        optimizer(model->parameters(), torch::optim::AdamWOptions(1e-4)),
        parallel(*model, optimizer, group, std::move(how)) {}
  std::string name;
  torch::nn::Sequential model;
  torch::optim::AdamW optimizer;
  DataParallel parallel;
  std::vector<double> seconds;
};

bool run(const Options& options) {
  at::set_num_threads(1);
  Group group = init();
  std::int64_t reports = 0;
  double seen = 0;
  std::vector<std::unique_ptr<Rival>> rivals;
  const auto add = [&](const std::string& name, GradientCheck check = GradientCheck::none) -> Watch& {
    rivals.push_back(
        std::make_unique<Rival>(name, options, group.duplicate(),
                                DataParallelOptions{.policy = options.policy,
                                                    .buckets = given(Fusion::parse(options.fusion)),
                                                    .check_gradients = check}));
    return rivals.back()->parallel.watch();
  };
  add("nothing");
  add("on_step").on_step([&](const StepMetrics&) { ++reports; });
  add("write_metrics").write_metrics("/dev/null");
  add("a hook that does nothing").register_bucket_hook([&](BucketGradients&) { seen += 1; });
  add("check_gradients", GradientCheck::error);

  torch::manual_seed(100 + group.rank());
  const torch::Tensor samples = torch::randn({options.batch, options.width});
  for (int step = 0; step < options.steps; ++step) {
    for (std::size_t turn = 0; turn < rivals.size(); ++turn) {
      Rival& rival = *rivals[(turn + step) % rivals.size()];
      group.barrier().wait();
      const double begin = now_seconds();
      rival.model->forward(samples).square().mean().backward();
      rival.parallel.step();
      rival.parallel.synchronize();
      rival.seconds.push_back(now_seconds() - begin);
    }
  }
  bool right = reports == options.steps && seen > 0;
  for (const auto& rival : rivals)
    for (std::size_t i = 0; i < rival->model->parameters().size(); ++i)
      right = right && torch::equal(rival->model->parameters()[i], rivals[0]->model->parameters()[i]);
  if (group.rank() != 0) return right;
  double load[1] = {0};
  getloadavg(load, 1);
  fmt::print("load {:.2f}, {} ranks, policy {}, parameters {}\n", load[0], group.size(), options.policy,
             right ? "right" : "WRONG");
  for (const auto& rival : rivals) {
    std::vector<double> ratios;
    for (std::size_t i = 10; i < rival->seconds.size(); ++i)
      ratios.push_back(rival->seconds[i] / rivals[0]->seconds[i]);
    const Quartiles ratio = quartiles_of(ratios);
    fmt::print("{:<26} a step {:.3f} ms, ratio {:.4f} ({:.4f} to {:.4f})\n", rival->name,
               1e3 * spread_of(rival->seconds).median, ratio.median, ratio.first, ratio.third);
  }
  return right;
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("What watching costs a step");
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
    fmt::print(stderr, "bench_watching: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
