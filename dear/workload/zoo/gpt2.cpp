#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", as its published weights are
// laid out. The output embedding is the input embedding: its tensor stands in the first layer and the last.
namespace dear::zoo {
namespace {

constexpr std::int64_t kGpt2Vocabulary = 50257;
constexpr std::int64_t kGpt2Positions = 1024;

void gpt2_block(Builder& net, const std::string& name, const Transformer& shape, std::int64_t length) {
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
  expect_length(length, kGpt2Positions);
  Builder net;
  net.embedding("transformer.wte", length, kGpt2Vocabulary, shape.width);
  net.embedding("transformer.wpe", length, kGpt2Positions, shape.width, {.keep_output = false});
  net.add(length * shape.width);
  net.dropout(length * shape.width);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    gpt2_block(net, fmt::format("transformer.h.{}", layer), shape, length);
  }
  net.layer_norm("transformer.ln_f", length, shape.width);
  net.tied_linear("lm_head", length, shape.width, kGpt2Vocabulary, "transformer.wte.weight");
  net.cross_entropy(length * kGpt2Vocabulary);
  return std::move(net).take();
}

}  // namespace dear::zoo
