#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// Touvron et al. 2023, arXiv 2302.13971 and 2307.09288: root-mean-square norms, rotary positions, a gated
// layer between, no biases; the larger ones share keys and values among groups of queries. Layers stand in
// forward order, attention is one kernel, as such models are trained.
namespace dear::zoo {
namespace {

constexpr std::int64_t kLlamaVocabulary = 32000;

void llama_block(Builder& net, const std::string& name, const Transformer& shape, std::int64_t length) {
  const std::int64_t head_width = shape.width / shape.heads;
  const std::int64_t key_heads = shape.key_heads > 0 ? shape.key_heads : shape.heads;
  const std::int64_t key_width = key_heads * head_width;
  const auto linear = [&](const char* part, std::int64_t in, std::int64_t out) {
    net.linear(fmt::format("{}.{}", name, part), length, in, out, {.bias = false});
  };
  net.layer_norm(name + ".input_layernorm", length, shape.width, {.bias = false});
  linear("self_attn.q_proj", shape.width, shape.width);
  linear("self_attn.k_proj", shape.width, key_width);
  net.rotate(length * (shape.width + key_width));
  linear("self_attn.v_proj", shape.width, key_width);
  net.attention({.length = length,
                 .heads = shape.heads,
                 .head_width = head_width,
                 .key_heads = key_heads,
                 .fused = true});
  linear("self_attn.o_proj", shape.width, shape.width);
  net.add(length * shape.width);
  net.layer_norm(name + ".post_attention_layernorm", length, shape.width, {.bias = false});
  linear("mlp.gate_proj", shape.width, shape.inner_width);
  linear("mlp.up_proj", shape.width, shape.inner_width);
  net.gate(length * shape.inner_width);
  linear("mlp.down_proj", shape.inner_width, shape.width);
  net.add(length * shape.width);
}

}  // namespace

Architecture llama(const Transformer& shape, std::int64_t length) {
  Builder net;
  net.embedding("model.embed_tokens", length, kLlamaVocabulary, shape.width);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    llama_block(net, fmt::format("model.layers.{}", layer), shape, length);
  }
  net.layer_norm("model.norm", length, shape.width, {.bias = false});
  net.linear("lm_head", length, shape.width, kLlamaVocabulary, {.bias = false});
  net.cross_entropy(length * kLlamaVocabulary);
  return std::move(net).take();
}

}  // namespace dear::zoo
