#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "dear/systems/pipeline/pipeline_model.h"
#include "dear/systems/train_command/corpus.h"

namespace dear::train_command {

struct GptOptions {
  std::int64_t vocabulary = 256;
  std::int64_t context = 128;  // characters that the model sees at most
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;  // divides width
  std::uint64_t seed = 1;
};

// A GPT-style transformer (Radford et al. 2019): learned positions, layer norm before causal self-attention
// and before a GELU MLP four times as wide, output weights tied to the token embedding. No dropout.
// Initialised as GPT-2 is, from `seed` alone: the global random generator has no say.
class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const GptOptions& options);

  // int64 [batch, time] with time <= context -> logits [batch, time, vocabulary] of each next character.
  torch::Tensor forward(const torch::Tensor& characters);

  // The operators compute what forward() does: the embedding, attention and perceptron of each block, the
  // head.
  [[nodiscard]] PipelineModel as_operators();

  [[nodiscard]] const GptOptions& options() const { return options_; }

 private:
  [[nodiscard]] torch::Tensor embedded(const torch::Tensor& characters);
  [[nodiscard]] torch::Tensor logits(const torch::Tensor& x);

  GptOptions options_;
  torch::nn::Embedding token_embedding_{nullptr};
  torch::nn::Embedding position_embedding_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  torch::nn::LayerNorm final_norm_{nullptr};
};
TORCH_MODULE(Gpt);

inline constexpr std::int64_t kMlpRatio = 4;  // the width within a perceptron to that of the model

// What is the same in a GPT with other perceptrons. Of [batch, time, 3 * width], queries, keys and values,
// `heads` heads of causal self-attention: [batch, time, width]. `future` is true at [i, j] when character j
// comes after i.
torch::Tensor attend(const torch::Tensor& query_key_value, std::int64_t heads, const torch::Tensor& future);
torch::Tensor future_of(std::int64_t time);
// Fills the parameters in one and two dimensions as GPT-2 does, by their names; leaves others as they are.
void initialise(torch::nn::Module& model, const GptOptions& options);

// The number of parameters of such a model, the tied weight counted once.
std::int64_t parameter_count(const GptOptions& options);

// Mean cross-entropy, in nats, of `logits` [batch, time, vocabulary] against int64 targets [batch, time].
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets);

// Samples of a text, int64 [count, context + 1]: the last `context` characters of a row are the targets of
// its first `context`.
torch::Tensor samples_of(const Corpus& corpus, const BatchSlice& slice, std::int64_t context);

// `count` characters that the model continues `start` (not empty) with, drawn from its probabilities at a
// temperature of 0.8. The same for the same model and seed.
std::vector<std::int64_t> generate(Gpt model, std::vector<std::int64_t> start, std::int64_t count,
                                   std::uint64_t seed);

}  // namespace dear::train_command
