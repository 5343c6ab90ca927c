#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// Dosovitskiy et al. 2021, arXiv 2010.11929, as torchvision has it: no dropout, attention in one kernel. Its
// three projections of the input are one tensor of the attention module.
namespace dear::zoo {
namespace {

void block(Builder& net, const std::string& name, const Transformer& shape, std::int64_t length) {
  net.layer_norm(name + ".ln_1", length, shape.width);
  net.linear(name + ".self_attention.in_proj", length, shape.width, 3 * shape.width);
  net.attention(
      {.length = length, .heads = shape.heads, .head_width = shape.width / shape.heads, .fused = true});
  net.linear(name + ".self_attention.out_proj", length, shape.width, shape.width);
  net.add(length * shape.width);
  net.layer_norm(name + ".ln_2", length, shape.width);
  net.linear(name + ".mlp.0", length, shape.width, shape.inner_width);
  net.gelu(length * shape.inner_width);
  net.linear(name + ".mlp.3", length, shape.inner_width, shape.width);
  net.add(length * shape.width);
}

}  // namespace

Architecture vit(const Transformer& shape, std::int64_t patch, std::int64_t side) {
  Builder net;
  const Image patches = net.conv("conv_proj", {.channels = 3, .height = side, .width = side}, shape.width,
                                 square(patch, patch), {.bias = true, .keep_output = false});
  const std::int64_t length = patches.height * patches.width + 1;
  net.parameter("class", "token", shape.width);
  net.concatenate(length * shape.width);
  net.parameter("encoder", "pos_embedding", length * shape.width);
  net.add(length * shape.width);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    block(net, fmt::format("encoder.layers.encoder_layer_{}", layer), shape, length);
  }
  net.layer_norm("encoder.ln", length, shape.width);
  net.linear("heads.head", 1, shape.width, 1000);
  net.cross_entropy(1000);
  return std::move(net).take();
}

}  // namespace dear::zoo
