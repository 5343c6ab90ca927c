#include "dear/systems/train_command/gpt.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace dear::train_command {
namespace {

constexpr double kEmbeddingDeviation = 0.02;
constexpr double kTemperature = 0.8;

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const GptOptions& options) : heads_(options.heads) {
    const std::int64_t width = options.width;
    attention_norm_ =
        register_module("attention_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    query_key_value_ = register_module("query_key_value", torch::nn::Linear(width, 3 * width));
    attention_output_ = register_module("attention_output", torch::nn::Linear(width, width));
    mlp_norm_ = register_module("mlp_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    mlp_input_ = register_module("mlp_input", torch::nn::Linear(width, kMlpRatio * width));
    mlp_output_ = register_module("mlp_output", torch::nn::Linear(kMlpRatio * width, width));
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& future) {
    return with_mlp(with_attention(x, future));
  }
  torch::Tensor with_attention(const torch::Tensor& x, const torch::Tensor& future) {
    return x + attention_output_(attend(query_key_value_(attention_norm_(x)), heads_, future));
  }
  torch::Tensor with_mlp(const torch::Tensor& x) {
    return x + mlp_output_(torch::gelu(mlp_input_(mlp_norm_(x))));
  }

 private:
  std::int64_t heads_;
  torch::nn::LayerNorm attention_norm_{nullptr};
  torch::nn::Linear query_key_value_{nullptr};
  torch::nn::Linear attention_output_{nullptr};
  torch::nn::LayerNorm mlp_norm_{nullptr};
  torch::nn::Linear mlp_input_{nullptr};
  torch::nn::Linear mlp_output_{nullptr};
};
TORCH_MODULE(Block);

}  // namespace

GptImpl::GptImpl(const GptOptions& options) : torch::nn::Module("Gpt"), options_(options) {
  token_embedding_ =
      register_module("token_embedding", torch::nn::Embedding(options.vocabulary, options.width));
  position_embedding_ =
      register_module("position_embedding", torch::nn::Embedding(options.context, options.width));
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    blocks_->push_back(Block(options));
  }
  final_norm_ =
      register_module("final_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
  initialise(*this, options_);
}

torch::Tensor attend(const torch::Tensor& query_key_value, std::int64_t heads, const torch::Tensor& future) {
  const std::int64_t batch = query_key_value.size(0);
  const std::int64_t time = query_key_value.size(1);
  const std::int64_t width = query_key_value.size(2) / 3;
  const std::int64_t width_of_head = width / heads;
  const torch::Tensor split =
      query_key_value.view({batch, time, 3, heads, width_of_head}).permute({2, 0, 3, 1, 4});
  const double scale = 1.0 / std::sqrt(static_cast<double>(width_of_head));
  const torch::Tensor scores = torch::matmul(split[0] * scale, split[1].transpose(-2, -1));
  const torch::Tensor weights =
      torch::softmax(scores.masked_fill(future, -std::numeric_limits<float>::infinity()), -1);
  return torch::matmul(weights, split[2]).transpose(1, 2).reshape({batch, time, width});
}

torch::Tensor future_of(std::int64_t time) { return torch::ones({time, time}, torch::kBool).triu(1); }

void initialise(torch::nn::Module& model, const GptOptions& options) {
  torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  // The 2 * layers additions to the residual stream must not increase its variance.
  const double residual_scale = 1 / std::sqrt(2.0 * static_cast<double>(options.layers));
  for (auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    torch::Tensor& value = item.value();
    const auto belongs_to = [&](const char* module) { return name.find(module) != std::string::npos; };
    if (value.dim() == 1) {
      value.fill_(belongs_to("norm.weight") ? 1.0 : 0.0);
    } else if (belongs_to("embedding")) {
      value.normal_(0.0, kEmbeddingDeviation, generator);
    } else if (value.dim() == 2) {
      const double deviation = 1 / std::sqrt(static_cast<double>(value.size(1)));
      const bool residual = belongs_to("attention_output") || belongs_to("mlp_output");
      value.normal_(0.0, residual ? residual_scale * deviation : deviation, generator);
    }
  }
}

torch::Tensor GptImpl::forward(const torch::Tensor& characters) {
  torch::Tensor x = embedded(characters);
  const torch::Tensor future = future_of(characters.size(1));
  for (const auto& block : *blocks_) {
    x = block->as<BlockImpl>()->forward(x, future);
  }
  return logits(x);
}

torch::Tensor GptImpl::embedded(const torch::Tensor& characters) {
  const std::int64_t time = characters.size(1);
  TORCH_CHECK(time <= options_.context, "Gpt: ", time, " characters given, but the context is ",
              options_.context);
  return token_embedding_(characters) + position_embedding_(torch::arange(time));
}

torch::Tensor GptImpl::logits(const torch::Tensor& x) {
  return torch::linear(final_norm_(x), token_embedding_->weight);
}

PipelineModel GptImpl::as_operators() {
  using Tensors = PipelineModel::Tensors;
  const auto self = std::dynamic_pointer_cast<GptImpl>(shared_from_this());
  PipelineModel model(self);
  auto x = model.add_function("embedding", [self](const Tensors& in) { return self->embedded(in[0]); },
                              {PipelineModel::batch()});
  for (std::size_t layer = 0; layer < blocks_->size(); ++layer) {
    const auto block = blocks_->ptr<BlockImpl>(layer);
    x = model.add_function(
        "blocks." + std::to_string(layer) + ".attention",
        [block](const Tensors& in) { return block->with_attention(in[0], future_of(in[0].size(1))); }, {x});
    x = model.add_function("blocks." + std::to_string(layer) + ".mlp",
                           [block](const Tensors& in) { return block->with_mlp(in[0]); }, {x});
  }
  model.add_function("head", [self](const Tensors& in) { return self->logits(in[0]); }, {x});
  return model;
}

std::int64_t parameter_count(const GptOptions& options) {
  const std::int64_t width = options.width;
  const std::int64_t norm = 2 * width;
  const std::int64_t attention = (width + 1) * 3 * width + (width + 1) * width;
  const std::int64_t mlp = (width + 1) * kMlpRatio * width + (kMlpRatio * width + 1) * width;
  const std::int64_t embeddings = (options.vocabulary + options.context) * width;
  return embeddings + options.layers * (2 * norm + attention + mlp) + norm;
}

torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
}

torch::Tensor samples_of(const Corpus& corpus, const BatchSlice& slice, std::int64_t context) {
  torch::Tensor samples = torch::empty({slice.count, context + 1}, torch::kInt64);
  auto* out = samples.data_ptr<std::int64_t>();
  for (const std::int64_t position :
       sample_positions(slice, static_cast<std::int64_t>(corpus.numbers.size()) - context))
    out = std::copy_n(corpus.numbers.begin() + position, context + 1, out);
  return samples;
}

std::vector<std::int64_t> generate(Gpt model, std::vector<std::int64_t> start, std::int64_t count,
                                   std::uint64_t seed) {
  torch::NoGradGuard no_grad;
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> all = std::move(start);
  const std::size_t given = all.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t seen = std::min(all.size(), static_cast<std::size_t>(model->options().context));
    const torch::Tensor input =
        torch::tensor(std::vector<std::int64_t>(all.end() - static_cast<std::ptrdiff_t>(seen), all.end()));
    const torch::Tensor logits = model->forward(input.unsqueeze(0))[0][-1].to(torch::kFloat64);
    const torch::Tensor cumulative = torch::softmax(logits / kTemperature, -1).cumsum(-1).contiguous();
    const double* begin = cumulative.data_ptr<double>();
    const double* end = begin + cumulative.numel();
    const double draw = static_cast<double>(random() >> 11) * 0x1p-53 * *(end - 1);
    all.push_back(std::upper_bound(begin, end - 1, draw) - begin);
  }
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(given));
  return all;
}

}  // namespace dear::train_command
