// Measures what DataParallel costs a program that needs none of it: a world of one against plain libtorch,
// and an operator that is observed against one that is not. Rivals run in turn in one process, and end with
// the same parameters or the bench fails. Run it on an idle machine.

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/comm/backends/init.h"
#include "dear/systems/train_command/gpt.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear {
namespace {

train_command::GptOptions shape(std::int64_t width) {
  return {.vocabulary = 96, .context = 64, .layers = 4, .width = width, .heads = 4, .seed = 1};
}

struct Rival {
  explicit Rival(std::int64_t width)
      : model(shape(width)), optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3)) {}
  train_command::Gpt model;
  torch::optim::AdamW optimizer;
  std::unique_ptr<DataParallel> parallel;  // none: plain libtorch
  std::vector<double> seconds;

  void step(const torch::Tensor& characters, const torch::Tensor& targets) {
    const double begin = now_seconds();
    if (!parallel) optimizer.zero_grad();
    train_command::cross_entropy(model->forward(characters), targets).backward();
    if (parallel) {
      parallel->step();
    } else {
      optimizer.step();
    }
    seconds.push_back(now_seconds() - begin);
  }
};

int compare_world_of_one(std::int64_t width, int steps) {
  Rival plain(width);
  Rival dear(width);
  dear.parallel = std::make_unique<DataParallel>(*dear.model, dear.optimizer, init(),
                                                 DataParallelOptions{.buckets = given()});
  torch::manual_seed(7);
  std::vector<double> ratios;
  for (int step = 0; step < steps; ++step) {
    const torch::Tensor text = torch::randint(96, {8, 65});
    const torch::Tensor characters = text.slice(1, 0, 64).contiguous();
    const torch::Tensor targets = text.slice(1, 1, 65).contiguous();
    // Which goes first changes: neither finds the other's data in the cache every time.
    Rival& first = step % 2 == 0 ? plain : dear;
    Rival& second = step % 2 == 0 ? dear : plain;
    first.step(characters, targets);
    second.step(characters, targets);
    if (step >= steps / 10) ratios.push_back(dear.seconds.back() / plain.seconds.back());
  }
  dear.parallel->synchronize();
  const bool same = parameter_digest(*plain.model) == parameter_digest(*dear.model);
  const Quartiles ratio = quartiles_of(ratios);
  fmt::print("| {} | {:.2f} ms | {:.2f} ms | {:.3f} | {:.3f} to {:.3f} | {} |\n", width,
             1e3 * spread_of(plain.seconds).median, 1e3 * spread_of(dear.seconds).median, ratio.median,
             ratio.first, ratio.third, same ? "yes" : "NO");
  return same ? EXIT_SUCCESS : EXIT_FAILURE;
}

// Every operator, and nothing to wait for: the price of an observer that is on.
struct Idle : autograd::OperatorObserver {
  bool touched(const at::Tensor&) noexcept override {
    ++inputs;
    return false;
  }
  void throw_if_failed() override {}
  std::int64_t inputs = 0;
};

void measure_operators(int repeats) {
  Idle idle;
  autograd::ObserverRegistration registration(idle);
  train_command::Gpt model(shape(64));
  const torch::NoGradGuard no_grad;
  const torch::Tensor characters = torch::zeros({1, 8}, torch::kInt64);
  std::vector<double> off;
  std::vector<double> on;
  for (int i = 0; i < repeats; ++i) {
    double begin = now_seconds();
    model->forward(characters);
    off.push_back(now_seconds() - begin);
    registration.enable();
    begin = now_seconds();
    model->forward(characters);
    on.push_back(now_seconds() - begin);
    registration.disable();
  }
  const double inputs = static_cast<double>(idle.inputs) / repeats;
  const double observed = spread_of(on).median, unobserved = spread_of(off).median;
  fmt::print(
      "\na forward of {:.0f} tensor inputs: {:.1f} us unobserved, {:.1f} us observed; {:.0f} ns for each "
      "input\n",
      inputs, 1e6 * unobserved, 1e6 * observed, 1e9 * (observed - unobserved) / inputs);
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("What DataParallel costs where there is nothing to overlap");
  int steps = 300;
  app.add_option("--steps", steps, "of each rival")->check(CLI::Range(10, 1000000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(1);
    double load[1] = {0};
    getloadavg(load, 1);
    fmt::print(
        "load {:.2f}\n\n| width | plain libtorch | DataParallel, world of one | median ratio | quartiles | "
        "same "
        "parameters |\n|---|---|---|---|---|---|\n",
        load[0]);
    int status = EXIT_SUCCESS;
    for (const std::int64_t width : {32, 128, 256}) status |= dear::compare_world_of_one(width, steps);
    dear::measure_operators(20 * steps);
    return status;
  } catch (const dear::Error& error) {
    fmt::print(stderr, "live_cost: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
