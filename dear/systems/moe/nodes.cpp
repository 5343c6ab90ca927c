#include "dear/systems/moe/nodes.h"

#include <utility>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>

#include "dear/systems/moe/order.h"

namespace dear::systems::moe {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr const char* kExchange = "exchange";

Exchange& exchange_of(AutogradContext* ctx) {
  return static_cast<Exchange&>(*ctx->saved_data[kExchange].toCapsule());
}

struct Fork : Function<Fork> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x) {
    ctx->set_materialize_grads(false);
    return {x.view_as(x), x.view_as(x)};
  }
  static variable_list backward(AutogradContext* /*ctx*/, const variable_list& gradients) {
    if (!gradients[0].defined()) return {gradients[1]};
    return {gradients[1].defined() ? gradients[0] + gradients[1] : gradients[0]};
  }
};

struct SendTokens : Function<SendTokens> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const ExchangeOfPart& exchange) {
    note("launch");
    ctx->saved_data[kExchange] = held(exchange);
    exchange->launch_to_experts("tokens", x);
    return x.new_zeros({1});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& /*gradients*/) {
    note("wait");
    const Tensor by_choice = exchange_of(ctx).take_back();
    const Tensor first = by_choice.select(1, 0);
    return {by_choice.size(1) == 1 ? first : first + by_choice.select(1, 1), {}};
  }
};

struct TakeTokens : Function<TakeTokens> {
  static Tensor forward(AutogradContext* ctx, const Tensor& /*token*/, const ExchangeOfPart& exchange) {
    note("wait");
    ctx->saved_data[kExchange] = held(exchange);
    return exchange->take_at_experts();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    note("launch");
    exchange_of(ctx).launch_back("gradients of tokens", gradients[0]);
    return {gradients[0].new_zeros({1}), {}};
  }
};

struct SendBack : Function<SendBack> {
  static Tensor forward(AutogradContext* ctx, const Tensor& made, const ExchangeOfPart& exchange) {
    note("launch");
    ctx->saved_data[kExchange] = held(exchange);
    exchange->launch_back("results", made);
    return made.new_zeros({1});
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& /*gradients*/) {
    note("wait");
    return {exchange_of(ctx).take_at_experts(), {}};
  }
};

struct TakeBack : Function<TakeBack> {
  static Tensor forward(AutogradContext* ctx, const Tensor& /*token*/, const Tensor& weights,
                        const ExchangeOfPart& exchange) {
    note("wait");
    ctx->saved_data[kExchange] = held(exchange);
    const Tensor taken = exchange->take_back();
    ctx->save_for_backward({taken, weights});
    const Tensor first = taken.select(1, 0) * weights.narrow(1, 0, 1);
    return taken.size(1) == 1 ? first : first + taken.select(1, 1) * weights.narrow(1, 1, 1);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    note("launch");
    const variable_list saved = ctx->get_saved_variables();
    const Tensor dy = gradients[0].unsqueeze(1);
    exchange_of(ctx).launch_to_experts("gradients of results", (dy * saved[1].unsqueeze(2)).flatten(0, 1));
    Tensor of_weights;
    if (ctx->needs_input_grad(1)) of_weights = (saved[0] * dy).sum(2);
    return {dy.new_zeros({1}), of_weights, {}};
  }
};

// The rows of an expert from all parts as the uncut batch has them: by rank, then part.
Tensor gathered(const std::vector<LeftByPart>& parts, std::size_t i, std::int64_t expert) {
  const auto of = [](const LeftByPart& part) -> const Arriving& {
    return *static_cast<const Arriving*>(part.of_part.get());
  };
  std::vector<Tensor> blocks;
  for (std::int64_t rank = 0; rank < of(parts.front()).ranks(); ++rank)
    for (const LeftByPart& part : parts)
      blocks.push_back(
          part.tensors[i].narrow(0, of(part).begin_of(rank, expert), of(part).count(rank, expert)));
  return blocks.size() == 1 ? blocks.front() : torch::cat(blocks);
}

Tensor by_expert(const Tensor& rows, const Tensor& matrices, const Arriving& arriving) {
  Tensor result = torch::empty({rows.size(0), matrices.size(2)}, rows.options());
  for (std::int64_t expert = 0; expert < arriving.experts(); ++expert) {
    const std::int64_t begin = arriving.begin_of(expert);
    const std::int64_t count = arriving.begin_of(expert + 1) - begin;
    Tensor block = result.narrow(0, begin, count);
    at::mm_out(block, rows.narrow(0, begin, count), matrices.select(0, expert));
  }
  return result;
}

// A part's Arriving, as a node keeps it.
struct KeptArriving : torch::CustomClassHolder {
  explicit KeptArriving(std::shared_ptr<const Arriving> kept) : arriving(std::move(kept)) {}
  std::shared_ptr<const Arriving> arriving;
};

struct ExpertProduct : Function<ExpertProduct> {
  static Tensor forward(AutogradContext* ctx, const Tensor& rows, const Tensor& /*token*/,
                        const SharedWeights& weights, const std::shared_ptr<const Arriving>& arriving,
                        int part) {
    ctx->saved_data["left"] = held(weights.left());
    ctx->saved_data["arriving"] = held(c10::make_intrusive<KeptArriving>(arriving));
    ctx->saved_data["part"] = std::int64_t{part};
    ctx->save_for_backward({rows, weights.weight(0)});
    return by_expert(rows, weights.weight(0).transpose(1, 2), *arriving);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const auto arriving = held_in<KeptArriving>(ctx->saved_data["arriving"])->arriving;
    const Tensor dy = gradients[0].contiguous();
    Tensor of_rows, of_token;
    if (ctx->needs_input_grad(1)) {
      held_in<SharedWeights::Left>(ctx->saved_data["left"])
          ->add(static_cast<int>(ctx->saved_data["part"].toInt()),
                {.tensors = {saved[0], dy}, .of_part = arriving});
      of_token = dy.new_zeros({1});
    }
    if (ctx->needs_input_grad(0)) of_rows = by_expert(dy, saved[1], *arriving);
    return {of_rows, of_token, {}, {}, {}};
  }
};

}  // namespace

std::pair<Tensor, Tensor> fork(const Tensor& x) {
  variable_list two = Fork::apply(x);
  return {two[0], two[1]};
}
Tensor send_tokens(const Tensor& x, const ExchangeOfPart& exchange) { return SendTokens::apply(x, exchange); }
Tensor take_tokens(const Tensor& token, const ExchangeOfPart& exchange) {
  return TakeTokens::apply(token, exchange);
}
Tensor send_back(const Tensor& made, const ExchangeOfPart& exchange) {
  return SendBack::apply(made, exchange);
}
Tensor take_back(const Tensor& token, const Tensor& weights, const ExchangeOfPart& exchange) {
  return TakeBack::apply(token, weights, exchange);
}

ExpertProductInParts::ExpertProductInParts(const Tensor& matrices, double scale, When when)
    : weights_({matrices}, when,
               [sizes = matrices.sizes().vec(), type = matrices.options(),
                scale](const std::vector<LeftByPart>& parts) -> std::vector<Tensor> {
                 Tensor result = torch::empty(sizes, type);
                 for (std::int64_t expert = 0; expert < result.size(0); ++expert) {
                   Tensor of_expert = result.select(0, expert);
                   at::mm_out(of_expert, gathered(parts, 1, expert).t(), gathered(parts, 0, expert));
                 }
                 if (scale != 1) result.mul_(scale);
                 return {result};
               }) {}

Tensor ExpertProductInParts::operator()(int part, const std::shared_ptr<const Arriving>& arriving,
                                        const Tensor& rows) const {
  return ExpertProduct::apply(rows, weights_.token(), weights_, arriving, part);
}

}  // namespace dear::systems::moe
