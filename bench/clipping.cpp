// Measures what clipping by the global norm costs a step, on the ranks of a launcher: steps without it and
// with it in turns, of one model each. The norm is checked against that of the whole gradient. Run it on an
// idle machine:
//
//   dear launch -n 2 build/release/bench/bench_clipping

#include "bench/stack.h"
#include <cmath>
#include <cstdint>
#include <cstdlib>
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

namespace dear {
namespace {

using bench::StackOptions;

struct Rival {
  Rival(const StackOptions& options, const Group& group)
      : model(bench::make_stack(options)),
        optimizer(model->parameters(), torch::optim::AdamWOptions(1e-4)),
        parallel(*model, optimizer, group,
                 {.policy = options.policy, .buckets = given(Fusion::parse(options.fusion))}) {}
  void backward(const torch::Tensor& inputs) { model->forward(inputs).square().mean().backward(); }
  torch::nn::Sequential model;
  torch::optim::AdamW optimizer;
  DataParallel parallel;
  std::vector<double> seconds, in_clipping;
};

// Takes the mean gradient of all ranks, whose samples every rank can make.
double norm_of_all(const StackOptions& options, const std::vector<torch::Tensor>& samples) {
  torch::nn::Sequential model = bench::make_stack(options);
  for (const torch::Tensor& inputs : samples)
    (model->forward(inputs).square().mean() / static_cast<double>(samples.size())).backward();
  double sum = 0;
  for (const torch::Tensor& tensor : model->parameters())
    sum += tensor.grad().to(torch::kFloat64).square().sum().item<double>();
  return std::sqrt(sum);
}

bool run(const StackOptions& options) {
  Group group = init();
  Rival plain(options, group.duplicate());
  Rival clipped(options, group.duplicate());
  std::vector<torch::Tensor> samples;
  for (int rank = 0; rank < group.size(); ++rank) samples.push_back(bench::inputs_of(rank, options));
  bool right = true;
  bench::take_turns(group, std::vector{&plain, &clipped}, options.steps, [&](Rival& rival, int step) {
    rival.backward(samples[static_cast<std::size_t>(group.rank())]);
    const double begin = now_seconds();
    if (&rival == &clipped) {
      const double norm = rival.parallel.clip_gradients_by_norm(1.0);
      if (step == 0) right = std::abs(norm / norm_of_all(options, samples) - 1) < 1e-5;
    }
    rival.in_clipping.push_back(now_seconds() - begin);
    rival.parallel.step();
    rival.parallel.synchronize();
  });
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
    std::vector<double> ratios;
    for (std::size_t i = 10; i < plain.seconds.size(); ++i)
      ratios.push_back(clipped.seconds[i] / plain.seconds[i]);
    const Quartiles ratio = quartiles_of(ratios);
    fmt::print(
        "load {:.2f}, {} ranks, policy {}: a step {:.3f} ms, with clipping {:.3f} ms (ratio {:.3f}, {:.3f} "
        "to "
        "{:.3f}); in the call {:.1f} us, an all-gather of 64 bytes a rank {:.1f} us; norm {}\n",
        bench::load(), group.size(), options.policy, 1e3 * spread_of(plain.seconds).median,
        1e3 * spread_of(clipped.seconds).median, ratio.median, ratio.first, ratio.third,
        1e6 * spread_of(clipped.in_clipping).median, 1e6 * spread_of(small).median,
        right ? "right" : "WRONG");
  }
  return right;
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  return dear::bench::main_of("bench_clipping", "What clipping by the global norm costs a step", argc, argv,
                              {}, dear::run);
}
