#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "dear/workload/zoo/architecture.h"

namespace dear::zoo {

struct Image {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  [[nodiscard]] std::int64_t elements() const { return channels * height * width; }
};

// The window of a convolution or pool.
struct Window {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t stride = 1;
  std::int64_t pad_height = 0;
  std::int64_t pad_width = 0;
};
constexpr Window square(std::int64_t side, std::int64_t stride = 1, std::int64_t pad = 0) {
  return {.height = side, .width = side, .stride = stride, .pad_height = pad, .pad_width = pad};
}
constexpr Window same(std::int64_t height, std::int64_t width) {  // leaves the size of the image as it is
  return {.height = height, .width = width, .stride = 1, .pad_height = height / 2, .pad_width = width / 2};
}

// `keep_output` is false where nothing needs the output in backward, for example because it is copied into a
// concatenation at once.
struct LayerOptions {
  bool bias = true;
  bool keep_output = true;
};

struct Attention {
  std::int64_t length = 0;
  std::int64_t heads = 0;
  std::int64_t head_width = 0;
  std::int64_t key_heads = 0;  // of keys and values: fewer than heads where queries share them; 0: as many
  bool fused = false;          // one kernel that keeps no probabilities (Dao et al. 2022, arXiv 2205.14135)
  bool dropout = false;        // of the probabilities
};

// Builds an Architecture layer by layer, in forward order. All sizes are of one sample; `positions` are the
// places of a sequence to which a layer is applied. What a layer makes is kept for backward, once, unless it
// is said otherwise. Functions without a name add their work to the last layer.
class Builder {
 public:
  // ConfigError where the window is larger than the padded image.
  Image conv(std::string name, Image in, std::int64_t out_channels, const Window& window,
             LayerOptions options = {.bias = false});
  void batch_norm(std::string name, Image image, LayerOptions options = {});
  void linear(std::string name, std::int64_t positions, std::int64_t in, std::int64_t out,
              LayerOptions options = {});
  // Reads the weight of an earlier layer, transposed: the output embedding.
  void tied_linear(std::string name, std::int64_t positions, std::int64_t in, std::int64_t out,
                   std::string weight, LayerOptions options = {.bias = false});
  // Without bias: a root-mean-square norm.
  void layer_norm(std::string name, std::int64_t positions, std::int64_t width, LayerOptions options = {});
  void embedding(std::string name, std::int64_t positions, std::int64_t rows, std::int64_t width,
                 LayerOptions options = {});
  // One that is added as it is, such as learned positions.
  void parameter(std::string name, std::string tensor, std::int64_t elements);

  Image max_pool(Image in, const Window& window);  // keeps 8-byte indices too
  Image average_pool(Image in, const Window& window);
  Image average_pool_to(Image in, std::int64_t side);
  void concatenate(std::int64_t elements);  // a copy of all
  void relu(std::int64_t elements);         // in place
  void add(std::int64_t elements);          // in place; in backward the sum of two gradients
  void gelu(std::int64_t elements);
  void gate(std::int64_t elements);     // silu(a) * b
  void dropout(std::int64_t elements);  // keeps a mask of bytes; its output is counted by the caller
  void rotate(std::int64_t elements);   // rotary positions; what was not rotated is not kept
  void attention(const Attention& attention);
  void cross_entropy(std::int64_t elements);  // of logits, whose place in memory its logarithms take

  void keep(std::int64_t elements) { last().kept_elements += elements; }

  [[nodiscard]] Architecture take() && { return std::move(architecture_); }

 private:
  Architecture::Layer& last() { return architecture_.layers.back(); }
  Architecture::Layer& start(std::string name);
  void multiply(Kind kind, double flops, double moved, double weights);
  void move(double forward, double backward, double weights = 0);

  Architecture architecture_;
};

// ConfigError unless a model with that many learned positions takes sequences of that length.
void expect_length(std::int64_t length, std::int64_t positions);

}  // namespace dear::zoo
