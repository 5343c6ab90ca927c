// Measures what saving while training goes on costs: iterations with a save under way, and without one, in
// turns. Both ways of saving at once, and no saving, end with the same parameters. Run it on an idle machine:
//
//   dear launch -n 2 build/release/bench/bench_checkpoint_cost --directory /var/tmp/saved

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
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

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/comm/backends/init.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear {
namespace {

struct Options {
  int layers = 16;
  int width = 1024;
  int batch = 128;
  int rounds = 6;
  int steps = 20;  // of a turn; a save begins with it
  std::string directory;
  bool sharded = false;
};

struct Job {
  Job(const Options& options, const Group& group)
      : model(make_model(options)), adamw(model->parameters(), 1e-4) {
    parallel.emplace(*model, adamw, group, DataParallelOptions{.buckets = given(Fusion::parse("25MiB"))});
  }
  static torch::nn::Sequential make_model(const Options& options) {
    torch::manual_seed(3);
    torch::nn::Sequential model;
    for (int layer = 0; layer < options.layers; ++layer) {
      if (layer > 0) model->push_back(torch::nn::ReLU());
      model->push_back(torch::nn::Linear(options.width, options.width));
    }
    return model;
  }
  double step(const torch::Tensor& inputs) {
    const double begin = now_seconds();
    model->forward(inputs).square().mean().backward();
    parallel->step();
    parallel->synchronize();
    return now_seconds() - begin;
  }
  torch::nn::Sequential model;
  torch::optim::AdamW adamw;
  std::optional<DataParallel> parallel;
};

bool run(const Options& options) {
  at::set_num_threads(1);
  Group group = init();
  torch::manual_seed(100 + group.rank());
  const torch::Tensor inputs = torch::randn({options.batch, options.width});
  Job job(options, group);
  std::vector<double> without, with, copies, waits;
  std::int64_t step = 0;
  const auto turn = [&](std::vector<double>& seconds) {
    for (int i = 0; i < options.steps; ++i, ++step) seconds.push_back(job.step(inputs));
  };
  {
    std::vector<double> warm_up;
    turn(warm_up);
    Checkpoints checkpoints(*job.parallel, {.directory = options.directory,
                                            .form = options.sharded ? CheckpointForm::a_shard_of_each_rank
                                                                    : CheckpointForm::one_file,
                                            .asynchronous = true});
    checkpoints.save({.step = 1});  // pages of the copy, and the folder
    checkpoints.wait();
    for (int round = 0; round < options.rounds; ++round) {
      turn(without);
      const double begin = now_seconds();
      checkpoints.save({.step = step});
      copies.push_back(now_seconds() - begin);
      turn(with);
      const double before = now_seconds();
      checkpoints.wait();
      waits.push_back(now_seconds() - before);
    }
  }
  const std::string digest = parameter_digest(*job.model);
  Job again(options, group);
  for (std::int64_t i = 0; i < step; ++i) again.step(inputs);
  const bool same = parameter_digest(*again.model) == digest;
  if (group.rank() == 0) {
    std::uintmax_t bytes = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(options.directory))
      if (file.is_regular_file()) bytes = std::max(bytes, file.file_size());
    double load[1] = {0};
    getloadavg(load, 1);
    const double plain = spread_of(without).median;
    fmt::print(
        "load {:.2f}, {} ranks, {} of {:.0f} MB: an iteration {:.1f} ms, while a checkpoint is written "
        "{:.1f} ms ({:+.1f} "
        "%); the copy {:.1f} ms, the wait after {} steps {:.1f} ms; parameters {}\n",
        load[0], group.size(), options.sharded ? "shards" : "a file", static_cast<double>(bytes) / 1e6,
        1e3 * plain, 1e3 * spread_of(with).median, 100 * (spread_of(with).median / plain - 1),
        1e3 * spread_of(copies).median, options.steps, 1e3 * spread_of(waits).median,
        same ? "the same bits" : "WRONG");
  }
  return same;
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("What saving while training goes on costs");
  dear::Options options;
  app.add_option("--layers", options.layers)->capture_default_str();
  app.add_option("--width", options.width)->capture_default_str();
  app.add_option("--batch", options.batch, "samples a rank")->capture_default_str();
  app.add_option("--rounds", options.rounds, "turns of each kind")->capture_default_str();
  app.add_option("--steps", options.steps, "of a turn")->capture_default_str();
  app.add_option("--directory", options.directory, "for the checkpoints, on the disk to measure")->required();
  app.add_flag("--sharded", options.sharded);
  CLI11_PARSE(app, argc, argv);
  try {
    return dear::run(options) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_checkpoint_cost: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
