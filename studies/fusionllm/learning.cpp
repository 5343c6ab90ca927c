#include "studies/fusionllm/learning.h"

#include "studies/training/gaussian.h"
#include "studies/training/threads.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/planner.h"
#include "dear/platform/cluster/sites.h"
#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/top_k.h"

namespace dear::studies::fusionllm {
namespace {

namespace pipeline = methods::pipeline;

// Each thing that is drawn has a key of codec::Draw.
enum Key : std::uint64_t { initial, order, batches };

constexpr float kMomentum = 0.9F;
constexpr double kLargestNorm = 1;  // of gradients, which are clipped to it as those of a GPT are

// The planner sees the network so, for one micro-batch.
pipeline::OperatorDag dag_of(const LearningOptions& options) {
  const std::vector<Range> tensors = options.shape.tensors();
  std::vector<pipeline::Operator> operators;
  for (int op = 0; op < options.shape.operators(); ++op) {
    const auto first = static_cast<std::size_t>(2 * op);
    const double work = 2.0 * options.samples * static_cast<double>(tensors[first].size());
    operators.push_back({.name = fmt::format("operator {}", op),
                         .kind = "matmul",
                         .forward_work = work,
                         .input_gradient_work = op == 0 ? 0 : work,
                         .weight_gradient_work = work,
                         .parameter_bytes = 4 * (tensors[first].size() + tensors[first + 1].size()),
                         .output_bytes = 4 * tensors[first + 1].size() * options.samples});
    if (op > 0) operators.back().inputs = {static_cast<pipeline::OperatorId>(op - 1)};
  }
  return {"digits", std::move(operators)};
}

// A spread says how the network lies on devices and what travels, for one seed, rule and ratio.
struct Spread {
  std::map<std::pair<std::size_t, Way>, double> ratios;  // by operator in front of a cut
  double slowest_seconds = 0, elements = 0;
};

Spread spread(const LearningOptions& options, std::uint64_t seed, CompressionRule rule, double ratio) {
  const pipeline::OperatorDag dag = dag_of(options);
  const PairCluster cluster =
      random_sites({.devices = options.devices, .sites = options.sites, .seed = seed});
  const pipeline::StageCosts costs(dag, cluster);
  // The stages are those without compression, so that rules differ in what travels alone.
  pipeline::Plan plan = make_plan(costs, {.micro_batches = options.micro_batches});
  plan.messages = compressed_messages(dag, cluster, plan.stages, {.rule = rule, .ratio = ratio});
  Spread result;
  const pipeline::PipelineTimes times = times_of(plan, costs);
  for (const auto* const way : {&times.activations, &times.gradients})
    for (const pipeline::Transfer& transfer : *way)
      result.slowest_seconds =
          std::max(result.slowest_seconds, options.micro_batches * transfer.busy_seconds);
  for (std::size_t s = 0; s + 1 < plan.stages.size(); ++s) {
    const auto output = static_cast<pipeline::OperatorId>(plan.stages[s].operators.end - 1);
    double activations = 1, gradients = 1;
    for (const pipeline::Message& message : plan.messages)
      if (std::cmp_equal(message.from_stage, s)) {
        activations = message.activation_ratio;
        gradients = message.gradient_ratio;
      }
    result.ratios[{output, Way::activations}] = activations;
    result.ratios[{output, Way::gradients}] = gradients;
    result.elements += options.micro_batches * static_cast<double>(sent_elements(dag[output], activations) +
                                                                   sent_elements(dag[output], gradients));
  }
  return result;
}

// A seed splits the images into those that are learnt and those that are not.
struct Split {
  std::vector<std::size_t> train, validation, test;
};

Split split(const Digits& digits, const LearningOptions& options, std::uint64_t seed) {
  std::vector<std::size_t> images(digits.labels.size());
  std::iota(images.begin(), images.end(), 0);
  codec::Draw draw(seed, 0, order);
  for (std::size_t i = images.size(); i > 1; --i) std::swap(images[i - 1], images[draw.below(i)]);
  const auto held_back = static_cast<std::ptrdiff_t>(options.held_back);
  if (std::ssize(images) < 3 * held_back)
    throw ConfigError(fmt::format("of {} images {} are held back twice: give at least three times as many",
                                  images.size(), held_back));
  return {.train = {images.begin() + 2 * held_back, images.end()},
          .validation = {images.begin(), images.begin() + held_back},
          .test = {images.begin() + held_back, images.begin() + 2 * held_back}};
}

void put(const Digits& digits, std::size_t image, std::size_t row, Batch& batch) {
  std::copy_n(digits.images.begin() + static_cast<std::ptrdiff_t>(image * Digits::kPixels), Digits::kPixels,
              batch.inputs.begin() + static_cast<std::ptrdiff_t>(row * Digits::kPixels));
  batch.labels[row] = digits.labels[image];
}

// Weights keep the variance of rectified units (He et al. 2015, arXiv 1502.01852). Those of blocks are so
// much smaller that the sum does not grow with their number.
std::vector<float> initial_parameters(const ResidualShape& shape, std::uint64_t seed) {
  training::Gaussian gaussian(seed, initial);
  std::vector<float> parameters;
  const std::vector<Range> tensors = shape.tensors();
  for (std::size_t i = 0; i < tensors.size(); i += 2) {
    const bool block = i > 0 && i + 2 < tensors.size();
    const double inputs = static_cast<double>(tensors[i].size()) / static_cast<double>(tensors[i + 1].size());
    const auto deviation = static_cast<float>(std::sqrt((block ? 2.0 / shape.blocks : 2.0) / inputs));
    while (std::cmp_less(parameters.size(), tensors[i].end)) parameters.push_back(deviation * gaussian());
    parameters.resize(static_cast<std::size_t>(tensors[i + 1].end));
  }
  return parameters;
}

class Training {
 public:
  Training(const Digits& digits, const LearningOptions& options, std::uint64_t seed, const Spread& spread)
      : digits_(digits),
        options_(options),
        seed_(seed),
        ratios_(spread.ratios),
        split_(split(digits, options, seed)),
        network_(options.shape),
        parameters_(initial_parameters(options.shape, seed)) {
    const auto samples = static_cast<std::size_t>(options.samples);
    batch_.inputs.resize(samples * Digits::kPixels);
    batch_.labels.resize(samples);
  }

  Learnt run(double learning_rate) {
    const Carry carry = [this](std::size_t op, Way way, std::vector<float>& values) {
      keep(op, way, values);
    };
    std::vector<float> gradient(parameters_.size()), velocity(parameters_.size());
    const auto rate = static_cast<float>(learning_rate);
    for (int step = 0; step < options_.steps; ++step) {
      codec::Draw draw(seed_, step, batches);
      std::fill(gradient.begin(), gradient.end(), 0.0F);
      for (int part = 0; part < options_.micro_batches; ++part) {
        for (std::size_t row = 0; row < batch_.labels.size(); ++row)
          put(digits_, split_.train[draw.below(split_.train.size())], row, batch_);
        network_.learn(parameters_, batch_, carry, 1 / static_cast<float>(options_.micro_batches), gradient);
      }
      double squares = 0;
      for (const float value : gradient) squares += static_cast<double>(value) * value;
      const auto clip = static_cast<float>(std::min(1.0, kLargestNorm / std::sqrt(squares)));
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        velocity[i] = kMomentum * velocity[i] + clip * gradient[i];
        parameters_[i] -= rate * velocity[i];
      }
    }
    const auto [test_loss, test_accuracy] = score(split_.test, carry);
    return {.validation_loss = score(split_.validation, carry).first,
            .test_loss = test_loss,
            .test_accuracy = test_accuracy,
            .whole_loss = score(split_.test, {}).first};
  }

 private:
  void keep(std::size_t op, Way way, std::vector<float>& values) {
    const auto found = ratios_.find({op, way});
    if (found == ratios_.end() || found->second <= 1) return;
    chosen_.resize(static_cast<std::size_t>(codec::kept(std::ssize(values), 1 / found->second)));
    selection_.largest(values, chosen_);
    std::fill(values.begin(), values.end(), 0.0F);
    for (const codec::Coordinate& one : chosen_) values[one.index] = one.value;
  }

  // Samples come in micro-batches as in training: what travels of one depends on the others.
  std::pair<double, double> score(const std::vector<std::size_t>& images, const Carry& carry) {
    double loss = 0, right = 0;
    std::size_t scored = 0;
    for (; scored + batch_.labels.size() <= images.size(); scored += batch_.labels.size()) {
      for (std::size_t row = 0; row < batch_.labels.size(); ++row)
        put(digits_, images[scored + row], row, batch_);
      const Scored one = network_.score(parameters_, batch_, carry);
      loss += one.loss * static_cast<double>(batch_.labels.size());
      right += one.right;
    }
    return {loss / static_cast<double>(scored), right / static_cast<double>(scored)};
  }

  const Digits& digits_;
  const LearningOptions& options_;
  std::uint64_t seed_;
  std::map<std::pair<std::size_t, Way>, double> ratios_;
  Split split_;
  ResidualNetwork network_;
  std::vector<float> parameters_;
  Batch batch_;
  codec::Selection selection_;
  std::vector<codec::Coordinate> chosen_;
};

double mean_over(const std::vector<Learnt>& all, double Learnt::* member) {
  double sum = 0;
  for (const Learnt& one : all) sum += one.*member;
  return sum / static_cast<double>(all.size());
}

}  // namespace

std::vector<double> LearntWith::losses() const {
  std::vector<double> all;
  for (const Learnt& one : by_seed) all.push_back(one.test_loss);
  return all;
}

double LearntWith::mean_loss() const { return mean_over(by_seed, &Learnt::test_loss); }
double LearntWith::mean_accuracy() const { return mean_over(by_seed, &Learnt::test_accuracy); }
double LearntWith::mean_whole_loss() const { return mean_over(by_seed, &Learnt::whole_loss); }

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

const LearntWith* find(const std::vector<LearntWith>& all, CompressionRule rule, double ratio) {
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const LearntWith& one) { return one.rule == rule && one.ratio == ratio; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<LearntWith> learn(const Digits& digits, const LearningOptions& options,
                              const studies::Progress& progress) {
  const auto seeds = static_cast<std::size_t>(options.seeds);
  std::vector<LearntWith> all{{}};
  for (const double ratio : options.ratios)
    for (const CompressionRule rule : {CompressionRule::top_k, CompressionRule::ada_top_k})
      all.push_back({.rule = rule, .ratio = ratio, .by_seed = {}, .slowest_seconds = {}, .elements = {}});
  std::vector<std::vector<Spread>> spreads;
  for (LearntWith& one : all) {
    spreads.emplace_back();
    for (std::size_t seed = 0; seed < seeds; ++seed) {
      spreads.back().push_back(spread(options, seed + 1, one.rule, one.ratio));
      one.slowest_seconds.push_back(spreads.back().back().slowest_seconds);
      one.elements.push_back(spreads.back().back().elements);
    }
  }

  const std::size_t rates = options.learning_rates.size();
  std::vector<std::vector<std::vector<Learnt>>> runs(
      all.size(), std::vector<std::vector<Learnt>>(rates, std::vector<Learnt>(seeds)));
  const auto train = [&](std::size_t run) {
    const std::size_t seed = run % seeds, rate = run / seeds % rates, with = run / seeds / rates;
    Training training(digits, options, seed + 1, spreads[with][seed]);
    runs[with][rate][seed] = training.run(options.learning_rates[rate]);
  };
  training::for_each_in_threads(all.size() * rates * seeds, train, "training", progress);
  for (std::size_t with = 0; with < all.size(); ++with) {
    // A loss that is no number is less than none.
    double least = HUGE_VAL;
    for (std::size_t rate = 0; rate < rates; ++rate) {
      const double loss = mean_over(runs[with][rate], &Learnt::validation_loss);
      if (rate > 0 && !(loss < least)) continue;
      least = std::isfinite(loss) ? loss : HUGE_VAL;
      all[with].learning_rate = options.learning_rates[rate];
      all[with].by_seed = runs[with][rate];
    }
  }
  return all;
}

}  // namespace dear::studies::fusionllm
