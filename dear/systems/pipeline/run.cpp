#include "dear/systems/pipeline/run.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::systems::pipeline {

Run::Run(const Job& job, Wire& wire, const std::vector<Tensors>& batches, LossOf loss_of,
         std::function<void(int stage)> stage_done, std::vector<Span>* spans)
    : job_(job),
      wire_(wire),
      batches_(batches),
      loss_of_(std::move(loss_of)),
      stage_done_(std::move(stage_done)),
      spans_(spans) {}

void Run::run() {
  const auto failed = [&](const std::string& why) {
    return Error(fmt::format("rank {}: {} failed: {}", job_.rank, doing_, why));
  };
  try {
    for (const Stage& one : job_.stages.stages)
      if (one.rank == job_.rank && !is_first(one.number))
        for (int micro_batch = 0; micro_batch < std::min(window(one.number), job_.micro_batches);
             ++micro_batch)
          wire_.expect(one.number - 1, false, micro_batch);
    for (const methods::pipeline::Task& task : job_.order) {
      const double begin = now_seconds();
      const bool is_forward = task.kind == methods::pipeline::TaskKind::forward;
      compute(task);
      record("compute",
             fmt::format("{} stage {}, micro-batch {}", name_of(task.kind), task.stage, task.micro_batch),
             is_forward ? Activity::forward : Activity::backward, begin);
    }
    wire_.finish_all();
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    throw failed(error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw failed(error.what());
  }
}

void Run::compute(const methods::pipeline::Task& task) {
  using Kind = methods::pipeline::TaskKind;
  const auto& [kind, number, micro_batch] = task;
  if (kind == Kind::forward) return forward(number, micro_batch);
  if (kind != Kind::weight_gradient) backward(number, micro_batch, kind == Kind::input_gradient);
  if (kind == Kind::input_gradient) return;
  const auto kept = kept_.extract({number, micro_batch});
  doing_ = fmt::format("the backward pass of {} for micro-batch {}", stage(number).text, micro_batch);
  if (kind == Kind::weight_gradient) kept.mapped().backward->weight_gradients();
  if (micro_batch + 1 == job_.micro_batches && stage_done_) stage_done_(number);
}

void Run::forward(int number, int micro_batch) {
  Kept& kept = kept_[{number, micro_batch}];
  if (!is_first(number)) {
    const Tensors arrived = taken(number - 1, false, micro_batch);
    const std::vector<Crossing>& crossings = cut(number - 1).crossings;
    for (std::size_t i = 0; i < crossings.size(); ++i) {
      torch::Tensor& tensor = kept.arrived[crossings[i].value] = arrived[i].detach();
      if (crossings[i].what.has_gradient) tensor.requires_grad_();
    }
    // Gradients that were read before this could be sent.
    wire_.finish(number - 1, true, micro_batch - window(number));
  }
  compute(number, micro_batch, kept);
  if (is_last(number)) return;
  Tensors leaving;
  for (const Crossing& one : cut(number).crossings) {
    const auto made = kept.made.find(one.value);
    leaving.push_back((made == kept.made.end() ? kept.arrived.at(one.value) : made->second).detach());
  }
  wire_.send(number, false, micro_batch, std::move(leaving));
  if (cut(number).carries(true)) wire_.expect(number, true, micro_batch);
}

void Run::compute(int number, int micro_batch, Kept& kept) {
  std::map<Value, torch::Tensor> values = kept.arrived;
  const auto& operators = job_.model.operators();
  for (std::int64_t op = stage(number).operators.begin; op < stage(number).operators.end; ++op) {
    const PipelineModel::Operator& one = operators[static_cast<std::size_t>(op)];
    doing_ = fmt::format("operator '{}' of micro-batch {}", one.name, micro_batch);
    Tensors inputs;
    for (const Value& input : one.inputs)
      inputs.push_back(input.maker < 0 ? batches_[index_of(input.index)][index_of(micro_batch)]
                                       : values.at(input));
    const Tensors outputs = one.compute(inputs);
    for (int index = 0; index < one.outputs; ++index) {
      const Value value{.maker = static_cast<int>(op), .index = index};
      const torch::Tensor& output = outputs.at(index_of(index));
      const SampledTensor& sampled = job_.sampled[value];
      if (!output.defined() || !sampled.is_like(output))
        throw MismatchError(fmt::format(
            "rank {}: {} made {}, where the sample gave [{}] of {}: shapes may not depend on values",
            job_.rank, doing_,
            output.defined() ? fmt::format("[{}] of {}", fmt::join(output.sizes(), ", "),
                                           c10::toString(output.scalar_type()))
                             : "nothing",
            fmt::join(sampled.sizes, ", "), c10::toString(sampled.type)));
      values[value] = output;
    }
  }
  if (is_last(number)) {
    doing_ = fmt::format("the loss of micro-batch {}", micro_batch);
    kept.loss = loss_of_(values.at({.maker = static_cast<int>(operators.size()) - 1}), micro_batch);
    loss_ += kept.loss.item<double>();
    return;
  }
  for (const Crossing& one : cut(number).crossings)
    if (const auto made = values.find(one.value); kept.arrived.count(one.value) == 0)
      kept.made[one.value] = made->second;
}

void Run::backward(int number, int micro_batch, bool weights_later) {
  Kept& kept = kept_.at({number, micro_batch});
  Tensors roots, gradients;
  std::map<Value, torch::Tensor> passed;  // gradients of what only passes this stage
  if (is_last(number)) {
    roots.push_back(kept.loss);
    gradients.push_back(torch::ones_like(kept.loss));
  } else {
    const std::vector<Crossing>& crossings = cut(number).crossings;
    const Tensors came =
        cut(number).carries(true) ? taken(number, true, micro_batch) : Tensors(crossings.size());
    for (std::size_t i = 0; i < crossings.size(); ++i) {
      if (!crossings[i].what.has_gradient) continue;
      const auto made = kept.made.find(crossings[i].value);
      if (made == kept.made.end()) {
        passed[crossings[i].value] = came[i];
      } else {
        roots.push_back(made->second);
        gradients.push_back(came[i]);
      }
    }
    wire_.finish(number, false, micro_batch);
  }
  doing_ = fmt::format("the backward pass of {} for micro-batch {}", stage(number).text, micro_batch);
  std::map<Value, torch::Tensor> found;  // gradients of what arrived
  if (weights_later) {
    Tensors leaves;
    for (const auto& [value, leaf] : kept.arrived)
      if (leaf.requires_grad()) leaves.push_back(leaf);
    const Tensors of_leaves =
        kept.backward.emplace(std::move(roots), std::move(gradients), std::move(leaves)).input_gradients();
    auto next = of_leaves.begin();
    for (const auto& [value, leaf] : kept.arrived)
      if (leaf.requires_grad()) found[value] = *next++;
  } else {
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    for (const auto& [value, leaf] : kept.arrived) found[value] = leaf.grad();
  }
  if (is_first(number)) return;
  if (cut(number - 1).carries(true)) {
    Tensors back;
    for (const Crossing& one : cut(number - 1).crossings) {
      torch::Tensor& gradient = back.emplace_back();
      if (!one.what.has_gradient) continue;
      const torch::Tensor& leaf = kept.arrived.at(one.value);
      const auto behind = passed.find(one.value);
      gradient = found.at(one.value);
      if (behind != passed.end()) gradient = gradient.defined() ? gradient + behind->second : behind->second;
      if (!gradient.defined()) gradient = torch::zeros_like(leaf);
    }
    wire_.send(number - 1, true, micro_batch, std::move(back));
  }
  if (const int next = micro_batch + window(number); next < job_.micro_batches)
    wire_.expect(number - 1, false, next);
}

Tensors Run::taken(int number, bool gradient, int micro_batch) {
  const double begin = now_seconds();
  Tensors tensors = wire_.take(number, gradient, micro_batch);
  record("wait",
         fmt::format("wait for {} {}, micro-batch {}",
                     gradient ? "gradients over cut" : "activations over cut", number, micro_batch),
         Activity::wait, begin);
  return tensors;
}

void Run::record(const char* lane, std::string name, Activity activity, double begin) {
  if (spans_ == nullptr) return;
  spans_->push_back({.rank = job_.rank,
                     .lane = lane,
                     .name = std::move(name),
                     .activity = activity,
                     .begin_seconds = begin,
                     .end_seconds = now_seconds()});
}

}  // namespace dear::systems::pipeline
