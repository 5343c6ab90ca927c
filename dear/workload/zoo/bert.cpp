#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// Devlin et al. 2019, arXiv 1810.04805, with both heads of its pre-training, its vocabulary padded to a
// multiple of eight as the study of arXiv 2302.12445 had it. Layers stand in the order of registration, by
// which the study fused tensors: the bias of the output embedding, and with it the product that it ends,
// before the transform that feeds it.
namespace dear::zoo {
namespace {

constexpr std::int64_t kBertVocabulary = 30528;
constexpr std::int64_t kBertPositions = 512;
constexpr std::int64_t kSegments = 2;

// After a projection: what comes out is dropped out, added to the stream, and the sum kept.
void into_stream(Builder& net, std::int64_t elements) {
  net.dropout(elements);
  net.add(elements);
}

void encoder_layer(Builder& net, const std::string& name, const Transformer& shape, std::int64_t length) {
  const std::int64_t stream = length * shape.width;
  for (const char* part : {"query", "key", "value"}) {
    net.linear(fmt::format("{}.attention.self.{}", name, part), length, shape.width, shape.width);
  }
  net.attention(
      {.length = length, .heads = shape.heads, .head_width = shape.width / shape.heads, .dropout = true});
  net.linear(name + ".attention.output.dense", length, shape.width, shape.width);
  into_stream(net, stream);
  net.layer_norm(name + ".attention.output.LayerNorm", length, shape.width);
  net.linear(name + ".intermediate.dense", length, shape.width, shape.inner_width);
  net.gelu(length * shape.inner_width);
  net.linear(name + ".output.dense", length, shape.inner_width, shape.width);
  into_stream(net, stream);
  net.layer_norm(name + ".output.LayerNorm", length, shape.width);
}

}  // namespace

Architecture bert(const Transformer& shape, std::int64_t length) {
  expect_length(length, kBertPositions);
  const std::int64_t stream = length * shape.width;
  Builder net;
  net.embedding("bert.embeddings.word_embeddings", length, kBertVocabulary, shape.width);
  net.embedding("bert.embeddings.position_embeddings", length, kBertPositions, shape.width,
                {.keep_output = false});
  net.add(stream);
  net.embedding("bert.embeddings.token_type_embeddings", length, kSegments, shape.width,
                {.keep_output = false});
  net.add(stream);
  net.layer_norm("bert.embeddings.LayerNorm", length, shape.width);
  net.dropout(stream);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    encoder_layer(net, fmt::format("bert.encoder.layer.{}", layer), shape, length);
  }
  net.linear("bert.pooler.dense", 1, shape.width, shape.width);
  net.tied_linear("cls.predictions", length, shape.width, kBertVocabulary,
                  "bert.embeddings.word_embeddings.weight", {.bias = true});
  net.cross_entropy(length * kBertVocabulary);
  net.linear("cls.predictions.transform.dense", length, shape.width, shape.width);
  net.gelu(stream);
  net.layer_norm("cls.predictions.transform.LayerNorm", length, shape.width);
  net.linear("cls.seq_relationship", 1, shape.width, kSegments);
  net.cross_entropy(kSegments);
  return std::move(net).take();
}

}  // namespace dear::zoo
