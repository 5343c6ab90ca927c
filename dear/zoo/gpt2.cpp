#include <fmt/format.h>

#include "dear/zoo/builder.h"
#include "dear/zoo/families.h"

// Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", as its published weights are
// laid out. The output embedding is the input embedding: its tensor stands in the first layer and the last.
namespace dear::zoo {
namespace {

constexpr std::int64_t kVocabulary = 50257;
constexpr std::int64_t kPositions = 1024;

void block(Builder& net, const std::string& name, const Transformer& shape, std::int64_t length) {
  const std::int64_t stream = length * shape.width;
  net.layer_norm(name + ".ln_1", length, shape.width);
  net.linear(name + ".attn.c_attn", length, shape.width, 3 * shape.width);
  net.attention(
      {.length = length, .heads = shape.heads, .head_width = shape.width / shape.heads, .dropout = true});
  net.linear(name + ".attn.c_proj", length, shape.width, shape.width);
  net.dropout(stream);
  net.add(stream);
  net.layer_norm(name + ".ln_2", length, shape.width);
  net.linear(name + ".mlp.c_fc", length, shape.width, shape.inner_width);
  net.gelu(length * shape.inner_width);
  net.linear(name + ".mlp.c_proj", length, shape.inner_width, shape.width);
  net.dropout(stream);
  net.add(stream);
}

}  // namespace

Architecture gpt2(const Transformer& shape, std::int64_t length) {
  expect_length(length, kPositions);
  Builder net;
  net.embedding("transformer.wte", length, kVocabulary, shape.width);
  net.embedding("transformer.wpe", length, kPositions, shape.width, {.keep_output = false});
  net.add(length * shape.width);
  net.dropout(length * shape.width);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    block(net, fmt::format("transformer.h.{}", layer), shape, length);
  }
  net.layer_norm("transformer.ln_f", length, shape.width);
  net.tied_linear("lm_head", length, shape.width, kVocabulary, "transformer.wte.weight");
  net.cross_entropy(length * kVocabulary);
  return std::move(net).take();
}

}  // namespace dear::zoo
