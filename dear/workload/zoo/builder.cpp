#include "dear/workload/zoo/builder.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::zoo {
namespace {

Image after(const Image& in, const Window& window, std::int64_t out_channels) {
  const std::int64_t height = in.height + 2 * window.pad_height - window.height;
  const std::int64_t width = in.width + 2 * window.pad_width - window.width;
  if (height < 0 || width < 0) {
    throw ConfigError(
        fmt::format("a window of {} x {} does not fit into what is left of the image, {} x {}: "
                    "choose larger images",
                    window.height, window.width, in.height, in.width));
  }
  return {.channels = out_channels, .height = height / window.stride + 1, .width = width / window.stride + 1};
}

double real(std::int64_t count) { return static_cast<double>(count); }

}  // namespace

Architecture::Layer& Builder::start(std::string name) {
  architecture_.layers.emplace_back();
  last().name = std::move(name);
  return last();
}

// Each gradient costs what forward does: that of the weights (or of one factor, where there are none) and
// that of the input, which the first layer's input has not.
void Builder::multiply(Kind kind, double flops, double moved, double weights) {
  const Kernel kernel{.kind = kind, .flops = flops, .moved = moved, .weights = weights};
  const bool of_samples = weights > 0 && architecture_.layers.size() == 1;
  last().forward.push_back(kernel);
  last().backward.push_back(kernel);
  if (!of_samples) last().backward.push_back(kernel);
}

void Builder::move(double forward, double backward, double weights) {
  last().forward.push_back({.kind = Kind::memory, .moved = forward, .weights = weights});
  last().backward.push_back({.kind = Kind::memory, .moved = backward, .weights = weights});
}

Image Builder::conv(std::string name, Image in, std::int64_t out_channels, const Window& window,
                    LayerOptions options) {
  const Image out = after(in, window, out_channels);
  const std::int64_t weights = window.height * window.width * in.channels * out_channels;
  start(std::move(name)).parameters = {{"weight", weights}};
  if (options.bias) last().parameters.push_back({"bias", out_channels});
  multiply(Kind::convolution, 2 * real(weights) * real(out.height * out.width),
           real(in.elements() + out.elements()), real(weights));
  last().matrix = {.inputs = window.height * window.width * in.channels + (options.bias ? 1 : 0),
                   .outputs = out_channels,
                   .positions = out.height * out.width};
  if (options.keep_output) keep(out.elements());
  return out;
}

// Forward reads the image for its mean and variance and again to normalise it; backward reads image and
// gradient for two sums and again for the gradient that it writes.
void Builder::batch_norm(std::string name, Image image, LayerOptions options) {
  start(std::move(name)).parameters = {{"weight", image.channels}, {"bias", image.channels}};
  move(3 * real(image.elements()), 5 * real(image.elements()));
  last().buffer_bytes = 2 * image.channels * 4 + 8;  // and the number of batches seen
  last().buffers = 3;
  if (options.keep_output) keep(image.elements());
}

void Builder::linear(std::string name, std::int64_t positions, std::int64_t in, std::int64_t out,
                     LayerOptions options) {
  start(std::move(name)).parameters = {{"weight", in * out}};
  if (options.bias) last().parameters.push_back({"bias", out});
  multiply(Kind::matmul, 2 * real(in * out) * real(positions), real((in + out) * positions), real(in * out));
  last().matrix = {.inputs = in + (options.bias ? 1 : 0), .outputs = out, .positions = positions};
  if (options.keep_output) keep(out * positions);
}

void Builder::tied_linear(std::string name, std::int64_t positions, std::int64_t in, std::int64_t out,
                          std::string weight, LayerOptions options) {
  linear(std::move(name), positions, in, out, options);
  last().parameters.erase(last().parameters.begin());
  last().matrix.reset();
  last().tied = {std::move(weight)};
}

// A row fits into a multiprocessor, so forward reads it once. Backward runs twice over input and gradient:
// for the input's gradient, which it writes, and for the weights'.
void Builder::layer_norm(std::string name, std::int64_t positions, std::int64_t width, LayerOptions options) {
  start(std::move(name)).parameters = {{"weight", width}};
  if (options.bias) last().parameters.push_back({"bias", width});
  move(2 * real(positions * width), 5 * real(positions * width));
  if (options.keep_output) keep(positions * width);
}

// The gradient is as large as the table, mostly zeros that are written all the same.
void Builder::embedding(std::string name, std::int64_t positions, std::int64_t rows, std::int64_t width,
                        LayerOptions options) {
  start(std::move(name)).parameters = {{"weight", rows * width}};
  move(2 * real(positions * width), 2 * real(positions * width));
  last().backward.back().weights = real(rows * width);
  if (options.keep_output) keep(positions * width);
}

void Builder::parameter(std::string name, std::string tensor, std::int64_t elements) {
  start(std::move(name)).parameters = {{std::move(tensor), elements}};
  move(2 * real(elements), real(elements), real(elements));
}

Image Builder::max_pool(Image in, const Window& window) {
  const Image out = average_pool(in, window);
  last().kept_bytes += 8 * out.elements();
  return out;
}

Image Builder::average_pool(Image in, const Window& window) {
  const Image out = after(in, window, in.channels);
  move(real(in.elements() + out.elements()), real(in.elements() + out.elements()));
  keep(out.elements());
  return out;
}

Image Builder::average_pool_to(Image in, std::int64_t side) {
  const Image out{.channels = in.channels, .height = side, .width = side};
  move(real(in.elements() + out.elements()), real(in.elements() + out.elements()));
  keep(out.elements());
  return out;
}

void Builder::concatenate(std::int64_t elements) {
  move(2 * real(elements), 2 * real(elements));
  keep(elements);
}

void Builder::relu(std::int64_t elements) { move(2 * real(elements), 3 * real(elements)); }

void Builder::add(std::int64_t elements) { move(3 * real(elements), 3 * real(elements)); }

void Builder::gelu(std::int64_t elements) {
  move(2 * real(elements), 3 * real(elements));
  keep(elements);
}

// Two kernels, as written: silu(a), which is kept, and the product, which is kept.
void Builder::gate(std::int64_t elements) {
  move(2 * real(elements), 3 * real(elements));
  move(3 * real(elements), 5 * real(elements));
  keep(2 * elements);
}

void Builder::dropout(std::int64_t elements) {
  move(2 * real(elements), 2 * real(elements));
  last().kept_bytes += elements;
}

void Builder::rotate(std::int64_t elements) { move(2 * real(elements), 2 * real(elements)); }

// Queries times keys, a softmax, probabilities times values. Operations are counted in full, with a causal
// mask too, as is the custom (Narayanan et al. 2021, arXiv 2104.04473).
void Builder::attention(const Attention& a) {
  const std::int64_t queries = a.length * a.heads * a.head_width;
  const std::int64_t keys = a.length * (a.key_heads > 0 ? a.key_heads : a.heads) * a.head_width;
  const std::int64_t scores = a.heads * a.length * a.length;
  const double flops = 2 * real(scores) * real(a.head_width);
  keep(queries);  // the result
  if (a.fused) {
    const Kernel kernel{.kind = Kind::matmul, .flops = 2 * flops, .moved = real(2 * queries + 2 * keys)};
    last().forward.push_back(kernel);
    // Five products in place of four: the scores are computed again.
    last().backward.push_back({.kind = Kind::matmul, .flops = 2.5 * kernel.flops, .moved = 2 * kernel.moved});
    last().kept_bytes += a.heads * a.length * 4;  // the softmax's sums
    return;
  }
  multiply(Kind::matmul, flops, real(queries + keys + scores), 0);
  move(2 * real(scores), 3 * real(scores));
  keep(scores);
  if (a.dropout) {
    dropout(scores);
    keep(scores);
  }
  multiply(Kind::matmul, flops, real(scores + keys + queries), 0);
}

void Builder::cross_entropy(std::int64_t elements) { move(2 * real(elements), 3 * real(elements)); }

void expect_length(std::int64_t length, std::int64_t positions) {
  if (length < 1 || length > positions) {
    throw ConfigError(
        fmt::format("a sequence of {} is beyond the positions that the model has: choose from "
                    "1 to {}",
                    length, positions));
  }
}

}  // namespace dear::zoo
