#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/group.h"

// A stack of linear layers, and rivals that take turns: for benches of one step.
namespace dear::bench {

struct StackOptions {
  int layers = 12;
  int width = 256;
  int batch = 64;
  int steps = 200;              // of each rival
  std::string policy = "dear";  // empty: the bench has policies of its own
  std::string fusion = "1MiB";
};

// Every stack of the same options has the same parameters.
inline torch::nn::Sequential make_stack(const StackOptions& options) {
  torch::manual_seed(3);
  torch::nn::Sequential model;
  for (int layer = 0; layer < options.layers; ++layer) {
    if (layer > 0) model->push_back(torch::nn::ReLU());
    model->push_back(torch::nn::Linear(options.width, options.width));
  }
  return model;
}

inline torch::Tensor inputs_of(int rank, const StackOptions& options) {
  torch::manual_seed(100 + rank);
  return torch::randn({options.batch, options.width});
}

// Calls step(rival, number) for each of `rivals`, pointers, `steps` times: all ranks begin a step together,
// and each rival is the first as often as any other. Adds what it took to rival->seconds.
template <typename Rivals, typename Step>
void take_turns(const Group& group, const Rivals& rivals, int steps, const Step& step) {
  for (int number = 0; number < steps; ++number) {
    for (std::size_t turn = 0; turn < rivals.size(); ++turn) {
      auto& rival = *rivals[(turn + static_cast<std::size_t>(number)) % rivals.size()];
      group.barrier().wait();
      const double begin = now_seconds();
      step(rival, number);
      rival.seconds.push_back(now_seconds() - begin);
    }
  }
}

inline double load() {
  double load[1] = {0};
  ::getloadavg(load, 1);
  return load[0];
}

// The program: reads options, and ends with failure where `run` returns false, which is what it verifies.
template <typename Run>
int main_of(const char* name, const char* title, int argc, char** argv, StackOptions options,
            const Run& run) {
  CLI::App app(title);
  app.add_option("--layers", options.layers)->capture_default_str();
  app.add_option("--width", options.width)->capture_default_str();
  app.add_option("--batch", options.batch)->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  if (!options.policy.empty()) app.add_option("--policy", options.policy)->capture_default_str();
  app.add_option("--fusion", options.fusion)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    at::set_num_threads(1);
    return run(options) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return EXIT_FAILURE;
  }
}

}  // namespace dear::bench
