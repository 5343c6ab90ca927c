// Measures what the norms of LAMB cost a step, on the ranks of a launcher: steps of AdamW and of LAMB in
// turns, of one model each, and of LAMB where every rank updates everything (dear-replicated), which
// exchanges nothing. All ranks must end with the same parameters, and LAMB with the same under both policies.
// Run it on an idle machine:
//
//   dear launch -n 2 build/release/bench/bench_tensor_norms

#include "bench/stack.h"
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
#include "dear/train/optim/lamb.h"

namespace dear {
namespace {

using bench::StackOptions;

struct Rival {
  Rival(std::string rival, const StackOptions& options, const std::string& policy, bool lamb,
        const Group& group)
      : name(std::move(rival)), model(bench::make_stack(options)) {
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

bool run(const StackOptions& options) {
  Group group = init();
  std::vector<std::unique_ptr<Rival>> rivals;
  rivals.push_back(std::make_unique<Rival>("AdamW", options, "dear", false, group.duplicate()));
  rivals.push_back(std::make_unique<Rival>("LAMB", options, "dear", true, group.duplicate()));
  rivals.push_back(
      std::make_unique<Rival>("AdamW, replicated", options, "dear-replicated", false, group.duplicate()));
  rivals.push_back(
      std::make_unique<Rival>("LAMB, replicated", options, "dear-replicated", true, group.duplicate()));
  const torch::Tensor inputs = bench::inputs_of(group.rank(), options);
  bench::take_turns(group, rivals, options.steps, [&](Rival& rival, int) {
    rival.model->forward(inputs).square().mean().backward();
    rival.parallel->step();
    rival.parallel->synchronize();
  });
  const bool right = rivals[1]->parameters() == rivals[3]->parameters();
  if (group.rank() != 0) return right;
  fmt::print("load {:.2f}, {} ranks, {} layers of width {}, fusion {}; LAMB's parameters are {}\n",
             bench::load(), group.size(), options.layers, options.width, options.fusion,
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
  return dear::bench::main_of("bench_tensor_norms", "What the norms of LAMB cost a step", argc, argv,
                              {.policy = ""}, dear::run);
}
