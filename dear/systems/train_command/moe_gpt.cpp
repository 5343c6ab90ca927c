#include "dear/systems/train_command/moe_gpt.h"

#include <utility>

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "dear/systems/moe/mixture_pass.h"
#include "dear/systems/moe/order.h"
#include "dear/systems/moe/weights.h"

namespace dear::train_command {
namespace {

using systems::moe::LayerNormInParts;
using systems::moe::LinearInParts;
using systems::moe::MixturePass;
using systems::moe::When;

LinearInParts in_parts(const torch::nn::Linear& layer, When when) {
  return {layer->weight, layer->bias, when};
}
LayerNormInParts in_parts(const torch::nn::LayerNorm& layer, When when) {
  return {layer->weight, layer->bias, layer->options.eps(), when};
}

class MoeBlockImpl : public torch::nn::Module {
 public:
  MoeBlockImpl(const MoeGptOptions& options, std::int64_t number, const std::shared_ptr<ExpertGroup>& ranks) {
    const std::int64_t width = options.gpt.width;
    const torch::nn::LayerNormOptions norm({width});
    attention_norm_ = register_module("attention_norm", torch::nn::LayerNorm(norm));
    query_key_value_ = register_module("query_key_value", torch::nn::Linear(width, 3 * width));
    attention_output_ = register_module("attention_output", torch::nn::Linear(width, width));
    mlp_norm_ = register_module("mlp_norm", torch::nn::LayerNorm(norm));
    if ((number + 1) % options.mixture_every == 0) {
      MixtureOptions mixture = options.mixture;
      mixture.width = width;
      mixture.hidden = kMlpRatio * width;
      mixture.seed = options.gpt.seed + static_cast<std::uint64_t>(number) + 1;
      mixture_ = register_module("mixture", Mixture(mixture, ranks));
    } else {
      mlp_input_ = register_module("mlp_input", torch::nn::Linear(width, kMlpRatio * width));
      mlp_output_ = register_module("mlp_output", torch::nn::Linear(kMlpRatio * width, width));
    }
  }

 private:
  friend class BlockPass;
  torch::nn::LayerNorm attention_norm_{nullptr}, mlp_norm_{nullptr};
  torch::nn::Linear query_key_value_{nullptr}, attention_output_{nullptr};
  torch::nn::Linear mlp_input_{nullptr}, mlp_output_{nullptr};  // null with a mixture
  Mixture mixture_{nullptr};
};
TORCH_MODULE(MoeBlock);

// One forward pass of a block, part by part.
class BlockPass {
 public:
  BlockPass(MoeBlockImpl& block, const GptOptions& gpt, When when, torch::Tensor future)
      : heads_(gpt.heads),
        future_(std::move(future)),
        attention_norm_(in_parts(block.attention_norm_, when)),
        query_key_value_(in_parts(block.query_key_value_, when)),
        attention_output_(in_parts(block.attention_output_, when)),
        mlp_norm_(in_parts(block.mlp_norm_, when)) {
    if (block.mixture_) return;
    mlp_.push_back(in_parts(block.mlp_input_, when));
    mlp_.push_back(in_parts(block.mlp_output_, when));
  }

  [[nodiscard]] torch::Tensor attended(int part, const torch::Tensor& x) const {
    const torch::Tensor mixed = attend(query_key_value_(part, attention_norm_(part, x)), heads_, future_);
    return x + attention_output_(part, mixed);
  }
  [[nodiscard]] torch::Tensor normed(int part, const torch::Tensor& attended) const {
    return mlp_norm_(part, attended);
  }
  [[nodiscard]] bool has_perceptron() const { return !mlp_.empty(); }
  [[nodiscard]] torch::Tensor perceptron(int part, const torch::Tensor& normed) const {
    return mlp_[1](part, torch::gelu(mlp_[0](part, normed)));
  }
  static Mixture& mixture_of(MoeBlockImpl& block) { return block.mixture_; }

 private:
  std::int64_t heads_;
  torch::Tensor future_;
  LayerNormInParts attention_norm_;
  LinearInParts query_key_value_, attention_output_;
  LayerNormInParts mlp_norm_;
  std::vector<LinearInParts> mlp_;
};

}  // namespace

MoeGptImpl::MoeGptImpl(const MoeGptOptions& options, std::shared_ptr<ExpertGroup> ranks)
    : torch::nn::Module("MoeGpt"), options_(options) {
  const GptOptions& gpt = options.gpt;
  token_embedding_ = register_module("token_embedding", torch::nn::Embedding(gpt.vocabulary, gpt.width));
  position_embedding_ = register_module("position_embedding", torch::nn::Embedding(gpt.context, gpt.width));
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t block = 0; block < gpt.layers; ++block)
    blocks_->push_back(MoeBlock(options, block, ranks));
  final_norm_ = register_module("final_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({gpt.width})));
  initialise(*this, gpt);
}

torch::Tensor MoeGptImpl::forward(const torch::Tensor& characters) {
  const std::int64_t time = characters.size(1), samples = characters.size(0);
  const bool lancet = options_.mixture.overlap == ExpertOverlap::lancet;
  const When when = lancet ? When::late : When::at_once;
  systems::moe::reserve_numbers();
  const torch::Tensor future = future_of(time);
  const torch::Tensor embedded = token_embedding_(characters) + position_embedding_(torch::arange(time));
  // Without Lancet's cut the stack works on the whole batch, and a mixture cuts it for itself.
  const int parts = lancet ? options_.mixture.parts : 1;
  std::vector<torch::Tensor> x = parts == 1 ? std::vector{embedded} : embedded.split(samples / parts);
  std::unique_ptr<MixturePass> mixture;  // whose results the next blocks take, part by part
  const auto received = [&](int part) -> torch::Tensor& {
    torch::Tensor& one = x[static_cast<std::size_t>(part)];
    if (mixture) one = one + mixture->receive(part);
    return one;
  };
  // A part goes through all blocks up to the next mixture's tokens before another one does: as much as there
  // is goes under the results of the other and under its own tokens.
  std::vector<BlockPass> passes;  // since the last mixture
  for (const auto& module : *blocks_) {
    auto& block = *module->as<MoeBlockImpl>();
    passes.emplace_back(block, options_.gpt, when, future);
    Mixture& experts = BlockPass::mixture_of(block);
    if (!experts && module != *(blocks_->end() - 1)) continue;
    std::unique_ptr<MixturePass> next;
    if (experts && lancet) next = experts->begin(samples, time, parts);
    for (int part = 0; part < parts; ++part) {
      torch::Tensor& one = received(part);
      for (const BlockPass& pass : passes) {
        one = pass.attended(part, one);
        const torch::Tensor normed = pass.normed(part, one);
        if (pass.has_perceptron()) {
          one = one + pass.perceptron(part, normed);
        } else if (next) {
          next->send(part, normed);
        } else {
          one = one + experts->forward(normed);
        }
      }
    }
    passes.clear();
    mixture = std::move(next);
    for (int part = 0; mixture && part < parts; ++part) mixture->compute(part);
  }
  for (int part = 0; part < parts; ++part) received(part);
  const torch::Tensor whole = parts == 1 ? x.front() : torch::cat(x);
  const LayerNormInParts norm = in_parts(final_norm_, when);
  return LinearInParts(token_embedding_->weight, torch::Tensor(), when)(0, norm(0, whole));
}

torch::Tensor MoeGptImpl::balance_loss() const {
  torch::Tensor sum;
  const std::vector<const MixtureImpl*> all = mixtures_of(*this);
  for (const MixtureImpl* one : all) sum = sum.defined() ? sum + one->balance_loss() : one->balance_loss();
  return sum / static_cast<double>(all.size());
}

std::int64_t parameter_count(const MoeGptOptions& options) {
  const std::int64_t width = options.gpt.width, hidden = kMlpRatio * width;
  const std::int64_t mixtures = options.gpt.layers / options.mixture_every;
  const std::int64_t perceptron = (width + 1) * hidden + (hidden + 1) * width;
  const std::int64_t mixture = options.mixture.experts * (width + 2 * width * hidden);
  return parameter_count(options.gpt) + mixtures * (mixture - perceptron);
}

}  // namespace dear::train_command
