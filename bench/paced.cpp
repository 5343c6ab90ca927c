// Live training where computation takes exactly as long as it is told: each layer is a small Linear that then
// sleeps. So f : b : r is what one asks for, and ranks that share cores do not slow each other: what is seen
// is the schedule and the library alone. All policies must end with the same parameters.
//
//   build/release/dear launch -n 4 -- build/release/bench/bench_paced [--reduce 3] [--layers 32] ...

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/backends/init.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/collective_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear {
namespace {

struct Options {
  std::int64_t layers = 32;
  std::int64_t width = 128;
  double forward_ms = 64;  // of all layers
  double backward = 2;     // times forward
  double reduce = 3;       // times forward
  int steps = 60;
  std::vector<std::string> policies{"serial", "wfbp", "dear", "dear-eager"};

  [[nodiscard]] double layer_seconds() const { return 1e-3 * forward_ms / static_cast<double>(layers); }
  [[nodiscard]] std::int64_t bytes() const { return layers * (width * width + width) * 4; }
};

void sleep(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Passes its input on, and its gradient, each after a while.
class Pause : public torch::autograd::Function<Pause> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               double forward_seconds, double backward_seconds) {
    context->saved_data["backward_seconds"] = backward_seconds;
    sleep(forward_seconds);
    return input.view_as(input);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    sleep(context->saved_data["backward_seconds"].toDouble());
    return {gradients[0], torch::Tensor(), torch::Tensor()};
  }
};

struct PacedImpl : torch::nn::Module {
  explicit PacedImpl(const Options& options)
      : forward_pause(options.layer_seconds()), backward_pause(options.backward * options.layer_seconds()) {
    torch::manual_seed(5);
    for (std::int64_t i = 0; i < options.layers; ++i)
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(options.width, options.width)));
  }
  // The gradient of a layer is there at the end of its part of the backward.
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) x = Pause::apply(torch::tanh(layer(x)), forward_pause, backward_pause);
    return x;
  }
  double forward_pause, backward_pause;
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Paced);

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

torch::Tensor loss_of(Paced& model, const Options& options) {
  return model->forward(torch::randn({4, options.width})).square().mean();
}

// Pauses so much shorter that a layer takes as long as it should, with its operators and with waking up.
void calibrate(Paced& model, const Options& options) {
  constexpr int kPasses = 15;
  const auto layers = static_cast<double>(options.layers);
  for (int round = 0; round < 2; ++round) {
    std::vector<double> forward, backward;
    for (int pass = 0; pass < kPasses; ++pass) {
      const double begin = now_seconds();
      const torch::Tensor loss = loss_of(model, options);
      const double middle = now_seconds();
      loss.backward();
      forward.push_back(middle - begin);
      backward.push_back(now_seconds() - middle);
    }
    model->forward_pause -= median(forward) / layers - options.layer_seconds();
    model->backward_pause -= median(backward) / layers - options.backward * options.layer_seconds();
  }
  model->zero_grad();
}

struct Result {
  double seconds = 0, simulated = 0;
  std::size_t buckets = 0;
  std::string digest;
};

Result run(const Options& options, const std::string& policy, const Group& group, const Network& network) {
  Paced model(options);
  calibrate(model, options);
  torch::optim::SGD sgd(model->parameters(), 0.01);
  DataParallel parallel(*model, sgd, group, {.policy = policy, .buckets = planned()});
  std::vector<double> seconds;
  double last = now_seconds();
  for (int step = 0; step < options.steps; ++step) {
    torch::manual_seed(1000 * step + group.rank());
    loss_of(model, options).backward();
    parallel.step();
    const double now = now_seconds();
    seconds.push_back(now - last);
    last = now;
  }
  parallel.synchronize();
  seconds.erase(seconds.begin(), seconds.begin() + options.steps / 2);
  Workload workload = parallel.workload();
  for (Layer& layer : workload.layers) {
    layer.forward_seconds = options.layer_seconds();
    layer.backward_seconds = options.backward * options.layer_seconds();
  }
  const std::vector<double> simulated = sim::iteration_seconds(
      find_policy(policy), workload, {parallel.grouping()}, flat_cluster(network, group.size()),
      cost::ring_times(network.link, group.size()));
  return {.seconds = median(std::move(seconds)),
          .simulated = simulated.front(),
          .buckets = parallel.grouping().size(),
          .digest = parameter_digest(*model)};
}

int compare(const Options& options) {
  ::prctl(PR_SET_TIMERSLACK, 1);
  at::set_num_threads(1);
  const int ranks = read_launch_environment().size;
  if (ranks < 2) throw ConfigError("start at least 2 ranks: dear launch -n 4 -- bench_paced");
  const double f = 1e-3 * options.forward_ms, b = options.backward * f, r = options.reduce * f;
  const Network network{.name = "paced",
                        .link = {.alpha_seconds = 20e-6,
                                 .beta_seconds_per_byte =
                                     r / (2.0 * (ranks - 1) / ranks) / static_cast<double>(options.bytes())}};
  const Group group = init({.network = network});
  if (group.rank() == 0)
    fmt::print(
        "f : b : r = {:.0f} : {:.0f} : {:.0f} ms, {} layers, {} ranks; f + b = {:.0f} ms\n\n"
        "| policy | buckets | iteration, ms | simulated, ms | dear / this | same parameters |\n"
        "|---|---|---|---|---|---|\n",
        1e3 * f, 1e3 * b, 1e3 * r, options.layers, ranks, 1e3 * (f + b));
  double dear = 0;
  std::string digest;
  int status = EXIT_SUCCESS;
  for (const std::string& policy : options.policies) {
    const Result result = run(options, policy, group, network);
    if (policy == "dear") dear = result.seconds;
    if (digest.empty()) digest = result.digest;
    if (result.digest != digest) status = EXIT_FAILURE;
    if (group.rank() == 0)
      fmt::print("| {} | {} | {:.1f} | {:.1f} | {} | {} |\n", policy, result.buckets, 1e3 * result.seconds,
                 1e3 * result.simulated, dear > 0 ? fmt::format("{:.3f}", dear / result.seconds) : "",
                 result.digest == digest ? "yes" : "NO");
  }
  return status;
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  dear::Options options;
  CLI::App app("Policies in live training whose computation takes as long as it is told");
  app.add_option("--layers", options.layers)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--width", options.width)->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--forward", options.forward_ms, "ms, of all layers")->capture_default_str();
  app.add_option("--backward", options.backward, "times forward")->capture_default_str();
  app.add_option("--reduce", options.reduce, "all-reduce of everything, times forward")
      ->capture_default_str();
  app.add_option("--steps", options.steps)->check(CLI::Range(30, 100'000))->capture_default_str();
  app.add_option("--policy", options.policies)->delimiter(',')->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return dear::compare(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_paced: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
