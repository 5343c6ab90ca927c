#include "dear/systems/pipeline/sampled.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/process_group/torch_types.h"

namespace dear::systems::pipeline {
namespace {

using Operator = PipelineModel::Operator;

constexpr int kMeasurements = 2;
constexpr double kWorkOfElement = 64;  // as in zoo_operators.h: what is moved, not computed

// Buffers and the random generator go back to what they were.
class Restored {
 public:
  explicit Restored(const PipelineModel& model) : buffers_(model.root().buffers()) {
    for (const torch::Tensor& buffer : buffers_) copies_.push_back(buffer.clone());
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(copies_[i]);
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }

 private:
  Tensors buffers_, copies_;
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  torch::Tensor state_;
};

bool holds(const Tensors& tensors, const torch::Tensor& one) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& other) { return one.is_same(other); });
}

// Leaves that gradients of these tensors reach.
Tensors leaves_of(const Tensors& outputs) {
  Tensors leaves;
  std::unordered_set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open;
  for (const torch::Tensor& output : outputs) {
    if (output.grad_fn()) open.push_back(output.grad_fn().get());
    if (!output.grad_fn() && output.requires_grad()) leaves.push_back(output);
  }
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (const auto* const leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      leaves.push_back(leaf->variable);
    for (const torch::autograd::Edge& edge : node->next_edges())
      if (edge.function) open.push_back(edge.function.get());
  }
  return leaves;
}

class Sampling {
 public:
  Sampling(const PipelineModel& model, bool measure)
      : model_(model),
        measure_(measure),
        parameters_(model.root().parameters()),
        buffers_(model.root().buffers()) {}

  Sampled run(const Tensors& micro_batch) {
    const Restored restored(model_);
    for (const torch::Tensor& one : micro_batch) {
      if (!one.defined() || !one.device().is_cpu() || !travels(one))
        throw ConfigError(
            "a tensor of the sample is not on the CPU, or of a type that does not travel: give one of the "
            "CPU");
      sampled_.batch.push_back(described(one, false));
      values_[{.maker = -1, .index = static_cast<int>(&one - micro_batch.data())}] = one.detach();
    }
    for (const Operator& one : model_.operators()) add(one);
    find_gradients();
    return std::move(sampled_);
  }

 private:
  [[noreturn]] static void refuse(const Operator& one, const std::string& why) {
    throw ConfigError(fmt::format("operator '{}' {}", one.name, why));
  }
  static bool travels(const torch::Tensor& one) {
    return one.layout() == at::kStrided &&
           (one.scalar_type() == at::kBool || process_group::dtype_of(one.scalar_type()));
  }
  static SampledTensor described(const torch::Tensor& tensor, bool requires_grad) {
    return {.sizes = tensor.sizes().vec(), .type = tensor.scalar_type(), .requires_grad = requires_grad};
  }

  Tensors inputs_of(const Operator& one) const {
    Tensors inputs;
    for (const Value& value : one.inputs) {
      const auto found = values_.find(value);
      if (found == values_.end())
        refuse(one, fmt::format(
                        "reads tensor {} of the batch, and the sample has {}: give a sample with all of them",
                        value.index, sampled_.batch.size()));
      inputs.push_back(found->second.detach());
      if (sampled_[value].requires_grad) inputs.back().requires_grad_();
    }
    return inputs;
  }

  static Tensors computed(const Operator& one, const Tensors& inputs) {
    try {
      return one.compute(inputs);
    } catch (const c10::Error& error) {
      refuse(one, fmt::format("cannot compute the sample: {}", error.what_without_backtrace()));
    }
  }

  void add(const Operator& one) {
    const torch::AutoGradMode enabled(true);
    const Tensors inputs = inputs_of(one);
    const auto versions = [](const Tensors& tensors) {
      std::vector<std::uint32_t> found;
      for (const torch::Tensor& tensor : tensors) found.push_back(tensor._version());
      return found;
    };
    const auto of_inputs = versions(inputs), of_buffers = versions(buffers_);
    Tensors outputs = computed(one, inputs);
    if (versions(inputs) != of_inputs)
      refuse(one, "changes in place what it reads, which other stages may read: let it make a new tensor");
    if (std::ssize(outputs) != one.outputs)
      refuse(one,
             fmt::format("makes {} tensors, and {} were said: say how many", outputs.size(), one.outputs));
    SampledOperator& found = sampled_.operators.emplace_back();
    found.uses = one.uses;
    for (const torch::Tensor& output : outputs) {
      if (!output.defined() || !output.device().is_cpu() || !travels(output))
        refuse(one,
               "makes what does not travel: let it make dense tensors of the CPU, of a floating-point type, "
               "bool, "
               "uint8, int32 or int64");
      found.outputs.push_back(described(output, output.requires_grad()));
    }
    for (const torch::Tensor& leaf : leaves_of(outputs)) {
      if (holds(inputs, leaf) || holds(found.uses, leaf)) continue;
      if (!holds(parameters_, leaf))
        refuse(one,
               "computes with a tensor that requires a gradient and is no parameter of the model: register "
               "it in its "
               "module");
      found.uses.push_back(leaf);
    }
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i]._version() == of_buffers[i]) continue;
      found.changes_buffers = true;
      if (!holds(found.uses, buffers_[i]))
        refuse(one, "changes a buffer that it does not list: give it in `uses`");
    }
    for (int index = 0; index < one.outputs; ++index)
      values_[{.maker = static_cast<int>(sampled_.operators.size()) - 1, .index = index}] =
          outputs[index_of(index)].detach();
    if (measure_) measure(one, inputs, found);
  }

  static void measure(const Operator& one, const Tensors& inputs, SampledOperator& found) {
    found.forward_seconds = found.backward_seconds = std::numeric_limits<double>::infinity();
    for (int time = 0; time < kMeasurements; ++time) {
      const double begin = now_seconds();
      const Tensors outputs = computed(one, inputs);
      const double middle = now_seconds();
      found.forward_seconds = std::min(found.forward_seconds, middle - begin);
      Tensors roots, gradients, leaves;
      for (const torch::Tensor& output : outputs) {
        if (!output.requires_grad()) continue;
        roots.push_back(output);
        gradients.push_back(torch::ones_like(output));
      }
      for (const Tensors& some : {inputs, found.uses})
        for (const torch::Tensor& leaf : some)
          if (leaf.requires_grad()) leaves.push_back(leaf);
      const double back = now_seconds();
      if (!roots.empty() && !leaves.empty())
        torch::autograd::grad(roots, leaves, gradients, std::nullopt, false, true);
      found.backward_seconds = std::min(found.backward_seconds, now_seconds() - back);
    }
  }

  // From the last operator to the first: a gradient comes to what requires one and is read by what gets one.
  void find_gradients() {
    const std::vector<Operator>& operators = model_.operators();
    if (operators.empty()) throw ConfigError("the model of a pipeline has no operator: add what it computes");
    std::map<Value, bool> reached;
    std::unordered_set<int> read;
    for (int op = static_cast<int>(operators.size()) - 1; op >= 0; --op) {
      const Operator& one = operators[index_of(op)];
      SampledOperator& found = sampled_.operators[index_of(op)];
      const bool last = op + 1 == static_cast<int>(operators.size());
      if (!last && read.count(op) == 0)
        refuse(one, "is read by none: leave it out, or let another read what it makes");
      if (last && (found.outputs.size() != 1 || !found.outputs[0].requires_grad))
        refuse(one,
               "is the last one, whose one tensor is the model's output, and makes none that depends on a "
               "parameter that "
               "requires a gradient");
      bool gets = last;
      for (int index = 0; index < one.outputs; ++index) {
        SampledTensor& output = found.outputs[index_of(index)];
        output.has_gradient = output.requires_grad && (last || reached[{.maker = op, .index = index}]);
        gets = gets || output.has_gradient;
      }
      for (const Value& input : one.inputs) {
        read.insert(input.maker);
        reached[input] = reached[input] || gets;
      }
    }
  }

  const PipelineModel& model_;
  const bool measure_;
  const Tensors parameters_, buffers_;
  std::map<Value, torch::Tensor> values_;
  Sampled sampled_;
};

struct Work {
  double forward = 0, backward = 0;
};

// Rows of a weight are what it is multiplied with: positions of a convolution, else all but the last
// dimension.
Work work_of(const SampledOperator& found, bool reads_floats, double flops_per_second) {
  if (found.forward_seconds > 0)
    return {.forward = found.forward_seconds * flops_per_second,
            .backward = found.backward_seconds * flops_per_second};
  double elements = 0, rows = 0, of_positions = 0;
  for (const SampledTensor& output : found.outputs) {
    elements += static_cast<double>(output.elements());
    if (output.sizes.empty() || output.elements() == 0) continue;
    rows = std::max(rows, static_cast<double>(output.elements() / output.sizes.back()));
    if (output.sizes.size() > 2)
      of_positions = std::max(of_positions, static_cast<double>(output.elements() / output.sizes[1]));
  }
  double work = kWorkOfElement * elements;
  for (const torch::Tensor& one : found.uses)
    if (reads_floats && one.dim() > 1)
      work += 2 * static_cast<double>(one.numel()) * (one.dim() > 2 ? of_positions : rows);
  return {.forward = work, .backward = 2 * work};
}

}  // namespace

Sampled sample(const PipelineModel& model, const Tensors& micro_batch, bool measure) {
  return Sampling(model, measure).run(micro_batch);
}

methods::pipeline::OperatorDag dag_of(const PipelineModel& model, const Sampled& sampled,
                                      double flops_per_second) {
  namespace planned = methods::pipeline;
  std::vector<planned::Operator> operators;
  std::vector<std::pair<torch::Tensor, planned::OperatorId>> owners;
  for (std::size_t op = 0; op < model.operators().size(); ++op) {
    const Operator& one = model.operators()[op];
    const SampledOperator& found = sampled.operators[op];
    planned::Operator listed{.name = one.name};
    bool reads_floats = false, needs_input_gradient = false, trains = false;
    for (const Value& input : one.inputs) {
      reads_floats = reads_floats || c10::isFloatingType(sampled[input].type);
      needs_input_gradient = needs_input_gradient || sampled[input].has_gradient;
      const auto maker = static_cast<planned::OperatorId>(input.maker);
      if (input.maker >= 0 &&
          std::find(listed.inputs.begin(), listed.inputs.end(), maker) == listed.inputs.end())
        listed.inputs.push_back(maker);
    }
    for (const torch::Tensor& tensor : found.uses) {
      trains = trains || tensor.requires_grad();
      const auto owner = std::find_if(owners.begin(), owners.end(),
                                      [&](const auto& other) { return other.first.is_same(tensor); });
      if (owner != owners.end() && tensor.requires_grad()) listed.tied = owner->second;
      if (owner != owners.end()) continue;
      owners.emplace_back(tensor, static_cast<planned::OperatorId>(op));
      listed.parameter_bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
    const SampledTensor* typical = &found.outputs.front();
    std::int64_t bytes = 0;
    for (const SampledTensor& output : found.outputs) {
      bytes += output.bytes();
      if (!c10::isFloatingType(typical->type)) typical = &output;
    }
    listed.dtype = process_group::dtype_of(typical->type).value_or(DType::u8);
    const std::int64_t element = size_of(listed.dtype);
    listed.output_bytes = listed.kept_bytes = (bytes + element - 1) / element * element;
    const Work work = work_of(found, reads_floats, flops_per_second);
    listed.forward_work = work.forward;
    if (needs_input_gradient) listed.input_gradient_work = trains ? work.backward / 2 : work.backward;
    if (trains) listed.weight_gradient_work = needs_input_gradient ? work.backward / 2 : work.backward;
    operators.push_back(std::move(listed));
  }
  return {model.root().name(), std::move(operators)};
}

}  // namespace dear::systems::pipeline
