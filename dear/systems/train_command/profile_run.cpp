#include "dear/systems/train_command/profile_run.h"

#include <map>
#include <utility>

#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/single.h"
#include "dear/systems/train_command/make_optimizer.h"
#include "dear/systems/train_command/pass_recorder.h"
#include "dear/systems/train_command/scripted_model.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/workload/zoo/device.h"

namespace dear::train_command {
namespace {

// Repeats forward and backward on the same random tensors.
class Passes {
 public:
  Passes(ScriptedModel& model, std::vector<torch::Tensor> inputs)
      : model_(model), inputs_(std::move(inputs)) {}

  void run(PassRecorder* recorder = nullptr) {
    if (recorder != nullptr) recorder->forward_begins();
    const std::vector<torch::Tensor> outputs = model_.forward(inputs_);
    if (recorder != nullptr) recorder->backward_begins();
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
    if (recorder != nullptr) recorder->ends();
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

std::vector<std::pair<std::string, torch::Tensor>> named_parameters_of(ScriptedModel& model) {
  std::vector<std::pair<std::string, torch::Tensor>> named;
  for (const auto& item : model.module().named_parameters()) named.emplace_back(item.key(), item.value());
  return named;
}

// Values that an optimiser keeps for each parameter.
int states_of(const std::string& optimizer) {
  return optimizer.starts_with("adam") || optimizer == "lamb" ? 2 : 1;
}

// Times of the counted kernels on a device, in place of those measured here.
void take_roofline(const std::vector<PassRecorder::LayerKernels>& kernels, const ProfileSettings& settings,
                   Workload& workload) {
  const zoo::Device& device = zoo::find_device(settings.device);
  double elements = 0;
  for (Tensor& tensor : workload.tensors) {
    if (tensor.dtype == DType::f32) tensor.dtype = settings.dtype;
    elements += static_cast<double>(tensor.elements);
  }
  for (std::size_t layer = 0; layer < kernels.size(); ++layer) {
    Layer& one = workload.layers[layer];
    one.forward_seconds = zoo::seconds(device, kernels[layer].forward, 1, settings.dtype);
    one.backward_seconds = zoo::seconds(device, kernels[layer].backward, 1, settings.dtype);
    one.activation_bytes = one.activation_bytes * size_of(settings.dtype) / size_of(DType::f32);
  }
  workload.update_seconds = zoo::transfer_seconds(
      device, elements * (3 + 2 * states_of(settings.optimizer)) * static_cast<double>(size_of(DType::f32)));
  workload.device = device.name;
}

}  // namespace

ModelProfile profile(const ProfileSettings& settings) {
  torch::manual_seed(settings.seed);
  ScriptedModel model(settings.model);
  const std::vector<torch::Tensor> trained = model.trained();
  Passes passes(model, model.random_inputs(settings.inputs, settings.range));
  PassRecorder recorder(named_parameters_of(model));
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
    passes.run(&recorder);
    optimizer->zero_grad();
    profile.plain_step_seconds = spread_of(seconds_of(settings.steps, step));
  }
  for (torch::Tensor tensor : trained) tensor.mutable_grad().reset();

  const auto optimizer = make_optimizer(settings.optimizer, trained, 0);
  DataParallel parallel(model.module(), *optimizer, Group(comm::make_single(), {}),
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
  const std::vector<PassRecorder::LayerKernels> kernels = recorder.counted_in(profile.workload);
  for (const PassRecorder::LayerKernels& layer : kernels)
    profile.flops += zoo::flops(layer.forward) + zoo::flops(layer.backward);
  if (!settings.device.empty()) take_roofline(kernels, settings, profile.workload);
  return profile;
}

}  // namespace dear::train_command
