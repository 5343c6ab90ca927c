#include "dear/systems/moe/weights.h"

#include <utility>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "dear/base/vocabulary/error.h"
#include "dear/systems/moe/order.h"

namespace dear::systems::moe {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Left = SharedWeights::Left;

constexpr const char* kLeft = "left";
constexpr const char* kPart = "part";

struct TokenNode : Function<TokenNode> {
  // Autograd sees the tensors of a TensorList, and not those of a vector.
  static Tensor forward(AutogradContext* ctx, at::TensorList weights, const c10::intrusive_ptr<Left>& left) {
    ctx->saved_data[kLeft] = held(left);
    return weights.front().new_zeros({1});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& /*gradients*/) {
    note("weight");
    variable_list gradients = held_in<Left>(ctx->saved_data[kLeft])->compute_gradients();
    gradients.emplace_back();  // of `left`
    return gradients;
  }
};

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

Tensor fill_up(const Tensor& rows) {
  const std::int64_t count = filled_up(rows.size(0));
  if (count == rows.size(0)) return rows;
  Tensor filled = rows.new_zeros({count, rows.size(1)});
  filled.narrow(0, 0, rows.size(0)).copy_(rows);
  return filled;
}
Tensor without_filling(const Tensor& filled, std::int64_t rows) {
  return filled.size(0) == rows ? filled : filled.narrow(0, 0, rows).clone();
}

Tensor joined(const std::vector<LeftByPart>& parts, std::size_t i) {
  if (parts.size() == 1) return parts.front().tensors[i];
  std::vector<Tensor> all;
  for (const LeftByPart& part : parts) all.push_back(part.tensors[i]);
  return torch::cat(all);
}

struct LinearNode : Function<LinearNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& /*token*/,
                        const SharedWeights& weights, int part) {
    ctx->saved_data[kLeft] = held(weights.left());
    ctx->saved_data[kPart] = std::int64_t{part};
    ctx->save_for_backward({x, weights.weight(0)});
    const Tensor rows = rows_of(x);
    const Tensor result = torch::linear(fill_up(rows), weights.weight(0), weights.weight(1));
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = result.size(1);
    return without_filling(result, rows.size(0)).view(shape);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor rows = rows_of(gradients[0]);
    Tensor of_x, of_token;
    if (ctx->needs_input_grad(1)) {
      held_in<Left>(ctx->saved_data[kLeft])
          ->add(static_cast<int>(ctx->saved_data[kPart].toInt()), {.tensors = {rows_of(saved[0]), rows}});
      of_token = rows.new_zeros({1});
    }
    if (ctx->needs_input_grad(0))
      of_x = without_filling(fill_up(rows).mm(saved[1]), rows.size(0)).view(saved[0].sizes());
    return {of_x, of_token, {}, {}};
  }
};

using Normed = std::tuple<Tensor, Tensor, Tensor>;
Normed norm_backward(const Tensor& dy, const variable_list& saved, std::array<bool, 3> wanted) {
  return at::native_layer_norm_backward(dy, saved[0], saved[0].sizes().slice(saved[0].dim() - 1), saved[1],
                                        saved[2], saved[3], saved[4], wanted);
}

struct LayerNormNode : Function<LayerNormNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& /*token*/,
                        const SharedWeights& weights, double epsilon, int part) {
    ctx->saved_data[kLeft] = held(weights.left());
    ctx->saved_data[kPart] = std::int64_t{part};
    auto [normed, mean, deviation] =
        at::native_layer_norm(x, x.sizes().slice(x.dim() - 1), weights.weight(0), weights.weight(1), epsilon);
    ctx->save_for_backward({x, mean, deviation, weights.weight(0), weights.weight(1)});
    return normed;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    Tensor of_x, of_token;
    if (ctx->needs_input_grad(1)) {
      held_in<Left>(ctx->saved_data[kLeft])
          ->add(
              static_cast<int>(ctx->saved_data[kPart].toInt()),
              {.tensors = {rows_of(gradients[0]), rows_of(saved[0]), rows_of(saved[1]), rows_of(saved[2])}});
      of_token = gradients[0].new_zeros({1});
    }
    if (ctx->needs_input_grad(0))
      of_x = std::get<0>(norm_backward(gradients[0], saved, {true, false, false}));
    return {of_x, of_token, {}, {}, {}};
  }
};

std::vector<Tensor> defined_of(const Tensor& weight, const Tensor& bias) {
  return bias.defined() ? std::vector{weight, bias} : std::vector{weight};
}

}  // namespace

c10::IValue held(c10::intrusive_ptr<torch::CustomClassHolder> object) {
  return c10::IValue::make_capsule(std::move(object));
}

SharedWeights::SharedWeights(const std::vector<Tensor>& weights, When when, Compute compute)
    : left_(c10::make_intrusive<Left>()) {
  reserve_numbers();
  left_->compute_ = std::move(compute);
  token_ = TokenNode::apply(at::TensorList(weights), left_);
  when == When::late ? compute_late(token_) : compute_at_once(token_);
  for (const Tensor& weight : weights) detached_.push_back(weight.detach());
}

void SharedWeights::Left::add(int part, LeftByPart left) {
  if (torch::GradMode::is_enabled())
    throw ConfigError(
        "second derivatives through a mixture of experts are not there: call backward() without "
        "create_graph");
  const int running = torch::autograd::get_current_graph_task_id();
  if (std::exchange(pass_, running) != running) parts_.clear();
  parts_[part] = std::move(left);
}

std::vector<Tensor> SharedWeights::Left::compute_gradients() {
  std::vector<LeftByPart> parts;
  for (auto& [part, left] : std::exchange(parts_, {})) parts.push_back(std::move(left));
  return compute_(parts);
}

LinearInParts::LinearInParts(const Tensor& weight, const Tensor& bias, When when)
    : weights_(defined_of(weight, bias), when,
               [has_bias = bias.defined()](const std::vector<LeftByPart>& parts) -> std::vector<Tensor> {
                 const Tensor dy = joined(parts, 1);
                 const Tensor of_weight = dy.t().mm(joined(parts, 0));
                 if (!has_bias) return {of_weight};
                 return {of_weight, dy.sum(0)};
               }) {}

Tensor LinearInParts::operator()(int part, const Tensor& x) const {
  return LinearNode::apply(x, weights_.token(), weights_, part);
}

LayerNormInParts::LayerNormInParts(const Tensor& weight, const Tensor& bias, double epsilon, When when)
    : weights_({weight, bias}, when,
               [weight = weight.detach(),
                bias = bias.detach()](const std::vector<LeftByPart>& parts) -> std::vector<Tensor> {
                 const variable_list all{joined(parts, 1), joined(parts, 2), joined(parts, 3), weight, bias};
                 auto [none, of_weight, of_bias] = norm_backward(joined(parts, 0), all, {false, true, true});
                 return {of_weight, of_bias};
               }),
      epsilon_(epsilon) {}

Tensor LayerNormInParts::operator()(int part, const Tensor& x) const {
  return LayerNormNode::apply(x, weights_.token(), weights_, epsilon_, part);
}

}  // namespace dear::systems::moe
