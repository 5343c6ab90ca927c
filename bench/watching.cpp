// Measures what watching costs a step, on the ranks of a launcher: steps of one model without it, with a
// callback for metrics, with a file of them and with a hook that looks at every bucket, in turns. Parameters
// are checked to be the same bits. Run it on an idle machine:
//
//   dear launch -n 2 build/release/bench/bench_watching

#include "bench/stack.h"
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/comm/backends/init.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/watch.h"

namespace dear {
namespace {

using bench::StackOptions;

struct Rival {
  Rival(std::string named, const StackOptions& options, const Group& group, DataParallelOptions how)
      : name(std::move(named)),
        model(bench::make_stack(options)),
        optimizer(model->parameters(), torch::optim::AdamWOptions(1e-4)),
        parallel(*model, optimizer, group, std::move(how)) {}
  std::string name;
  torch::nn::Sequential model;
  torch::optim::AdamW optimizer;
  DataParallel parallel;
  std::vector<double> seconds;
};

bool run(const StackOptions& options) {
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

  const torch::Tensor inputs = bench::inputs_of(group.rank(), options);
  bench::take_turns(group, rivals, options.steps, [&](Rival& rival, int) {
    rival.model->forward(inputs).square().mean().backward();
    rival.parallel.step();
    rival.parallel.synchronize();
  });
  bool right = reports == options.steps && seen > 0;
  for (const auto& rival : rivals)
    for (std::size_t i = 0; i < rival->model->parameters().size(); ++i)
      right = right && torch::equal(rival->model->parameters()[i], rivals[0]->model->parameters()[i]);
  if (group.rank() != 0) return right;
  fmt::print("load {:.2f}, {} ranks, policy {}, parameters {}\n", bench::load(), group.size(), options.policy,
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
  return dear::bench::main_of("bench_watching", "What watching costs a step", argc, argv, {.steps = 300},
                              dear::run);
}
