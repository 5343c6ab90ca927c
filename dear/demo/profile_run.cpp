#include "dear/demo/profile_run.h"

#include <map>
#include <utility>

#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include "dear/base/deadline.h"
#include "dear/base/error.h"
#include "dear/collective/single.h"
#include "dear/demo/make_optimizer.h"
#include "dear/demo/scripted_model.h"
#include "dear/train/data_parallel.h"

namespace dear::demo {
namespace {

// Repeats forward and backward on the same random tensors.
class Passes {
 public:
  Passes(ScriptedModel& model, std::vector<torch::Tensor> inputs)
      : model_(model), inputs_(std::move(inputs)) {}

  void run() {
    const std::vector<torch::Tensor> outputs = model_.forward(inputs_);
    gradients_.resize(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (gradients_[i].defined() && gradients_[i].sizes() == outputs[i].sizes()) continue;
      // One that is a single number is a loss, and everything is to be derived from it as it is.
      gradients_[i] = outputs[i].dim() == 0 ? torch::ones_like(outputs[i])
                                            : torch::randn(outputs[i].sizes()).to(outputs[i].scalar_type());
    }
    try {
      torch::autograd::backward(outputs, gradients_);
    } catch (const c10::Error& error) {
      throw Error("the backward pass failed: " + reason_of(error));
    }
  }

 private:
  ScriptedModel& model_;
  std::vector<torch::Tensor> inputs_;
  std::vector<torch::Tensor> gradients_;
};

template <typename Step>
std::vector<double> seconds_of(std::int64_t steps, Step step) {
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < steps; ++i) {
    const double begin = now_seconds();
    step();
    seconds.push_back(now_seconds() - begin);
  }
  return seconds;
}

// The spread of what each iteration took in all for `activity`, with the median of the workload.
Spread spread_of_pass(const Trace& trace, Activity activity, double median) {
  std::map<std::int64_t, double> by_iteration;
  for (const Span& span : trace.spans) {
    // The first iteration was only observed: its trace has updates but no layers.
    if (span.activity == activity && span.iteration > 0)
      by_iteration[span.iteration] += span.end_seconds - span.begin_seconds;
  }
  std::vector<double> seconds;
  for (const auto& [iteration, sum] : by_iteration) seconds.push_back(sum);
  Spread spread = spread_of(std::move(seconds));
  spread.median = median;
  return spread;
}

}  // namespace

ModelProfile profile(const ProfileSettings& settings) {
  torch::manual_seed(settings.seed);
  ScriptedModel model(settings.model);
  const std::vector<torch::Tensor> trained = model.trained();
  Passes passes(model, model.random_inputs(settings.inputs, settings.range));
  ModelProfile profile;
  for (const torch::Tensor& tensor : model.frozen()) profile.frozen_parameters += tensor.numel();

  {
    const auto optimizer = make_optimizer(settings.optimizer, trained, 0);
    const auto step = [&] {
      passes.run();
      optimizer->step();
      optimizer->zero_grad();
    };
    passes.run();
    for (const torch::Tensor& tensor : trained) profile.tensors_without_gradient += !tensor.grad().defined();
    seconds_of(settings.warm_up, step);
    profile.plain_step_seconds = spread_of(seconds_of(settings.steps, step));
  }
  for (torch::Tensor tensor : trained) tensor.mutable_grad().reset();

  const auto optimizer = make_optimizer(settings.optimizer, trained, 0);
  DataParallel parallel(model.module(), *optimizer, Group(collective::make_single(), {}),
                        {.buckets = given(), .record_trace = true});
  const auto step = [&] {
    passes.run();
    parallel.step();
  };
  step();  // learns the order of layers
  profile.recorded_step_seconds = spread_of(seconds_of(settings.steps, step));
  profile.workload = parallel.profile();
  const Trace trace = parallel.trace();
  const Workload& workload = profile.workload;
  profile.forward_seconds = spread_of_pass(trace, Activity::forward, workload.forward_seconds());
  profile.backward_seconds = spread_of_pass(trace, Activity::backward, workload.backward_seconds());
  profile.update_seconds = spread_of_pass(trace, Activity::update, workload.update_seconds);
  return profile;
}

}  // namespace dear::demo
