// Steps with K-FAC on a modelled network: D-KFAC, MPD-KFAC and SPD-KFAC train copies of one model in turns,
// and must end with the same parameters. Beside each: what the simulator predicts from the parts that were
// measured in D-KFAC's steps. Run it on an idle machine with a core for each rank:
//
//   build/release/dear launch -n 2 -- build/release/bench/bench_kfac_steps

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
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
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/comm/backends/init.h"
#include "dear/methods/kfac/predict.h"
#include "dear/platform/cost/ring.h"
#include "dear/systems/kfac/kfac.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear {
namespace {

struct Options {
  int layers = 8;
  int width = 512;
  int batch = 256;
  int steps = 40;
  int warm_up = 10;  // steps before any counts; plans change in them
  double alpha_us = 500;
  double gbits = 1;
  std::vector<std::string> strategies{"d-kfac", "mpd-kfac", "spd-kfac", "spd-kfac-owner"};
  bool real = false;
  double interference = 1;  // how much longer computation takes while something travels, for the prediction

  [[nodiscard]] Link link() const {
    return {.alpha_seconds = 1e-6 * alpha_us, .beta_seconds_per_byte = 8e-9 / gbits};
  }
};

torch::nn::Sequential make_model(const Options& options) {
  torch::manual_seed(3);
  torch::nn::Sequential model;
  for (int layer = 0; layer < options.layers; ++layer) {
    if (layer > 0) model->push_back(torch::nn::Tanh());
    model->push_back(torch::nn::Linear(options.width, options.width));
  }
  return model;
}

struct Rival {
  Rival(const Options& options, const std::string& strategy, const Group& group)
      : name(strategy),
        model(make_model(options)),
        sgd(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)),
        parallel(*model, sgd, group,
                 {.policy = "wfbp", .buckets = given(Fusion::parse("4MiB")), .record_trace = true}),
        kfac(*model, parallel, {.strategy = strategy, .damping = 0.1, .replan_after = options.warm_up / 2}) {}
  std::string name;
  torch::nn::Sequential model;
  torch::optim::SGD sgd;
  DataParallel parallel;
  Kfac kfac;
  std::vector<double> seconds;
  std::vector<double> begins;  // of steps
};

// Medians over steps of what the spans of a rank say.
struct Parts {
  std::map<std::string, double> seconds;  // by name of a span, a step
  double exposed_factors = 0;  // of their reductions: after the backward pass, before the first inverse
};

Parts parts_of(Rival& rival, int warm_up) {
  const Trace trace = rival.parallel.trace();
  std::map<std::string, std::vector<double>> all;
  std::vector<double> exposed;
  for (std::size_t step = static_cast<std::size_t>(warm_up); step + 1 < rival.begins.size(); ++step) {
    const double from = rival.begins[step], to = rival.begins[step + 1];
    std::map<std::string, double> here;
    double backward_ended = from, inverses_begin = to;
    for (const Span& span : trace.spans) {
      if (span.begin_seconds < from || span.begin_seconds >= to) continue;
      here[span.name] += span.end_seconds - span.begin_seconds;
      if (span.activity == Activity::backward || span.name.starts_with("factor "))
        backward_ended = std::max(backward_ended, span.end_seconds);
      if (span.name.starts_with("inverse of ")) inverses_begin = std::min(inverses_begin, span.begin_seconds);
    }
    double factors = 0;
    for (const Span& span : trace.spans)
      if (span.name.starts_with("reduction of factors"))
        factors += std::max(0.0, std::min(span.end_seconds, inverses_begin) -
                                     std::max(span.begin_seconds, std::max(from, backward_ended)));
    exposed.push_back(factors);
    for (const auto& [name, seconds] : here) all[name].push_back(seconds);
  }
  Parts parts;
  for (const auto& [name, seconds] : all) parts.seconds[name] = spread_of(seconds).median;
  parts.exposed_factors = spread_of(exposed).median;
  return parts;
}

// The job as D-KFAC's steps measured it.
methods::kfac::Job job_of(Rival& rival, const Parts& parts) {
  const auto seconds = [&](const std::string& name) {
    const auto found = parts.seconds.find(name);
    return found == parts.seconds.end() ? 0.0 : found->second;
  };
  methods::kfac::Job job{.workload = rival.parallel.profile(), .curvature = {}};
  const auto parameters = rival.model->named_parameters();
  const std::size_t factors = parameters.size();  // a weight and a bias in each layer, and two factors
  std::size_t matrix = 0;
  for (const Layer& layer : job.workload.layers) {
    std::optional<methods::kfac::LayerCurvature> curvature;
    for (const TensorId tensor : layer.tensors) {
      const torch::Tensor& parameter = parameters[job.workload.tensors[tensor].name];
      if (parameter.dim() != 2) continue;
      curvature = methods::kfac::LayerCurvature{
          .inputs = parameter.size(1) + 1,
          .outputs = parameter.size(0),
          .input_factor_seconds = seconds(fmt::format("factor {}", matrix)),
          .output_factor_seconds = seconds(fmt::format("factor {}", factors - 1 - matrix)),
          .precondition_seconds = seconds(fmt::format("preconditioning of layer {}", matrix))};
      ++matrix;
    }
    job.curvature.push_back(curvature);
  }
  return job;
}

using Points = std::vector<std::pair<std::int64_t, double>>;

// Medians of what was measured of each factor under this name, by the size of the factor.
template <typename SizeOf>
Points points_of(const methods::kfac::Job& job, const Parts& parts, const std::string& name, SizeOf size_of) {
  std::map<std::int64_t, std::vector<double>> seconds;
  const std::vector<methods::kfac::Factor> factors = job.factors();
  for (std::size_t factor = 0; factor < factors.size(); ++factor) {
    const auto found = parts.seconds.find(fmt::format("{} {}", name, factor));
    if (found != parts.seconds.end()) seconds[size_of(factors[factor])].push_back(found->second);
  }
  Points points;
  for (const auto& [size, all] : seconds) points.emplace_back(size, spread_of(all).median);
  return points;
}

methods::kfac::LinearCost fit(const Points& points, const methods::kfac::LinearCost& otherwise) {
  if (points.size() > 1) return methods::kfac::fit_linear(points);
  if (points.empty()) return otherwise;
  return {.start_seconds = 0, .seconds_per_element = points[0].second / static_cast<double>(points[0].first)};
}

// Tells what a collective of so many elements of fp32 takes on the idle network: the median of a few.
template <typename Issue>
Points measure(Group& group, Issue issue) {
  constexpr int kRepetitions = 7;
  Points points;
  for (const std::int64_t elements : {16'384, 131'328, 524'288, 2'101'248}) {
    const Buffer buffer = group.allocate(elements * 4);
    const View view{.buffer = buffer, .count = elements};
    std::vector<double> seconds;
    for (int i = 0; i < kRepetitions; ++i) {
      group.barrier().wait();
      const double begin = now_seconds();
      issue(view).wait();
      seconds.push_back(now_seconds() - begin);
    }
    points.emplace_back(elements, spread_of(seconds).median);
  }
  return points;
}

// Holds what was measured of a real network before training.
struct Measured {
  Points all_reduce, broadcast;
};

Measured measure(Group& group) {
  return {measure(group, [&](const View& view) { return group.all_reduce(view, Reduction::sum); }),
          measure(group, [&](const View& view) { return group.broadcast(view, 0); })};
}

methods::kfac::Costs costs_of(const Options& options, int ranks, const methods::kfac::Job& job,
                              const std::map<std::string, Parts>& parts,
                              const std::optional<Measured>& real) {
  const Link link = options.link();
  const auto linear = [&](auto cost) {
    return methods::kfac::LinearCost{cost(link, ranks, 0),
                                     (cost(link, ranks, 4'000'000) - cost(link, ranks, 0)) / 1e6};
  };
  const auto dimension = [](const methods::kfac::Factor& factor) { return factor.dimension; };
  const auto elements = [](const methods::kfac::Factor& factor) { return factor.packed_elements(); };
  const Parts& all_local = parts.at("d-kfac");
  methods::kfac::Costs costs{.ranks = ranks,
                             .all_reduce = linear(cost::ring_all_reduce_seconds),
                             .reduce = linear(cost::pipelined_broadcast_seconds),
                             .broadcast = linear(cost::pipelined_broadcast_seconds),
                             .invert = methods::kfac::InverseCost::measured(
                                 points_of(job, all_local, "inverse of factor", dimension)),
                             .average = fit(points_of(job, all_local, "average of factor", elements), {}),
                             .unpack = {},
                             .interference = {.computation = options.interference}};
  const auto distributed = parts.find("mpd-kfac");
  if (distributed != parts.end())
    costs.unpack = fit(points_of(job, distributed->second, "unpacking of inverse", elements), {});
  if (!real) return costs;
  costs.all_reduce = methods::kfac::fit_linear(real->all_reduce);
  costs.broadcast = methods::kfac::fit_linear(real->broadcast);
  costs.reduce = costs.broadcast;
  return costs;
}

bool run(const Options& options) {
  at::set_num_threads(1);
  InitOptions init_options;
  if (!options.real) init_options.network = Network{.name = "bench", .link = options.link()};
  Group group = init(init_options);
  std::optional<Measured> real;
  if (options.real) real = measure(group);
  std::vector<std::unique_ptr<Rival>> rivals;
  for (const std::string& strategy : options.strategies)
    rivals.push_back(std::make_unique<Rival>(options, strategy, group.duplicate()));
  torch::manual_seed(100 + group.rank());
  const torch::Tensor inputs = torch::randn({options.batch, options.width});
  for (int step = 0; step < options.steps; ++step)
    for (auto& rival : rivals) {
      group.barrier().wait();
      const double begin = now_seconds();
      rival->begins.push_back(begin);
      rival->model->forward(inputs).square().mean().backward();
      rival->kfac.step();
      rival->parallel.step();
      rival->parallel.synchronize();
      if (step >= options.warm_up) rival->seconds.push_back(now_seconds() - begin);
    }
  for (auto& rival : rivals) rival->begins.push_back(now_seconds());

  bool same = true;
  for (auto& rival : rivals)
    for (std::size_t i = 0; i < rival->model->parameters().size(); ++i) {
      const torch::Tensor first = rivals.front()->model->parameters()[i];
      const torch::Tensor other = rival->model->parameters()[i];
      same = same && ((other - first).norm() <= 1e-3 * first.norm()).item<bool>();
    }
  std::map<std::string, Parts> parts;
  for (auto& rival : rivals) parts[rival->name] = parts_of(*rival, options.warm_up);
  const methods::kfac::Job job = job_of(*rivals.front(), parts.at("d-kfac"));
  if (group.rank() != 0) return same;
  double load[1] = {0};
  getloadavg(load, 1);
  const std::string network =
      real ? "a real wire" : fmt::format("alpha {} us, {} Gbit/s", options.alpha_us, options.gbits);
  fmt::print("load {:.2f}, {} ranks, {} layers of {}, batch {}, {}; parameters {}\n", load[0], group.size(),
             options.layers, options.width, options.batch, network, same ? "the same" : "DIFFER");
  if (!same) return false;
  const methods::kfac::Costs costs = costs_of(options, group.size(), job, parts, real);
  const Grouping& grouping = rivals.front()->parallel.grouping();
  for (std::size_t i = 0; i < rivals.size(); ++i) {
    const methods::kfac::Plan plan =
        methods::kfac::make_plan(job, costs, methods::kfac::find_strategy(rivals[i]->name));
    const methods::kfac::Prediction predicted = methods::kfac::predict(job, grouping, plan, costs);
    std::vector<double> ratios;
    for (std::size_t step = 0; step < rivals[i]->seconds.size(); ++step)
      ratios.push_back(rivals.front()->seconds[step] / rivals[i]->seconds[step]);
    fmt::print(
        "{:16} a step {:7.2f} ms (predicted {:7.2f}), {:5.3f} times as fast as {}; factors exposed {:6.2f} "
        "ms "
        "(predicted {:6.2f}); {}\n",
        rivals[i]->name, 1e3 * spread_of(rivals[i]->seconds).median, 1e3 * predicted.iteration_seconds,
        quartiles_of(ratios).median, rivals.front()->name, 1e3 * parts.at(rivals[i]->name).exposed_factors,
        1e3 * predicted.parts.factors_sent, rivals[i]->kfac.report().plan);
  }
  return true;
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("Steps with K-FAC on a modelled or a real network");
  dear::Options options;
  app.add_option("--layers", options.layers)->capture_default_str();
  app.add_option("--width", options.width)->capture_default_str();
  app.add_option("--batch", options.batch)->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--warm-up", options.warm_up)->capture_default_str();
  app.add_option("--alpha-us", options.alpha_us)->capture_default_str();
  app.add_option("--gbits", options.gbits)->capture_default_str();
  app.add_option("--strategies", options.strategies)->delimiter(',')->capture_default_str();
  app.add_option("--interference", options.interference,
                 "How much longer computation takes while something travels, for the prediction: as "
                 "`dear bench collective --interference` says")
      ->check(CLI::Range(1.0, 100.0));
  app.add_flag("--real", options.real,
               "On the network that is there; alpha and Gbit/s are for the prediction");
  CLI11_PARSE(app, argc, argv);
  try {
    return dear::run(options) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const dear::Error& error) {
    fmt::print(stderr, "bench_kfac_steps: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
