#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// He et al. 2016, arXiv 1512.03385, as torchvision has it: the stride of a bottleneck is in its 3 x 3
// convolution, and the shortcut's modules are registered, and run, after the block's own.
namespace dear::zoo {
namespace {

Image conv_norm(Builder& net, const std::string& conv, const std::string& norm, Image in,
                std::int64_t channels, const Window& window) {
  const Image out = net.conv(conv, in, channels, window);
  net.batch_norm(norm, out);
  return out;
}

Image conv_norm_relu(Builder& net, const std::string& block, int number, Image in, std::int64_t channels,
                     const Window& window) {
  const Image out = conv_norm(net, fmt::format("{}.conv{}", block, number),
                              fmt::format("{}.bn{}", block, number), in, channels, window);
  net.relu(out.elements());
  return out;
}

void shortcut(Builder& net, const std::string& block, Image in, Image out, std::int64_t stride) {
  if (in.channels != out.channels || stride > 1) {
    net.conv(block + ".downsample.0", in, out.channels, square(1, stride));
    net.batch_norm(block + ".downsample.1", out, {.keep_output = false});
  }
  net.add(out.elements());
  net.relu(out.elements());
}

Image basic(Builder& net, const std::string& name, Image in, std::int64_t channels, std::int64_t stride) {
  const Image x = conv_norm_relu(net, name, 1, in, channels, square(3, stride, 1));
  const Image out = conv_norm(net, name + ".conv2", name + ".bn2", x, channels, square(3, 1, 1));
  shortcut(net, name, in, out, stride);
  return out;
}

Image bottleneck(Builder& net, const std::string& name, Image in, std::int64_t channels,
                 std::int64_t stride) {
  Image x = conv_norm_relu(net, name, 1, in, channels, square(1));
  x = conv_norm_relu(net, name, 2, x, channels, square(3, stride, 1));
  const Image out = conv_norm(net, name + ".conv3", name + ".bn3", x, 4 * channels, square(1));
  shortcut(net, name, in, out, stride);
  return out;
}

}  // namespace

Architecture resnet(const ResNet& shape, std::int64_t side) {
  Builder net;
  Image x =
      conv_norm(net, "conv1", "bn1", {.channels = 3, .height = side, .width = side}, 64, square(7, 2, 3));
  net.relu(x.elements());
  x = net.max_pool(x, square(3, 2, 1));
  for (int stage = 0; stage < 4; ++stage) {
    for (std::int64_t b = 0; b < shape.blocks[stage]; ++b) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, b);
      const std::int64_t stride = stage > 0 && b == 0 ? 2 : 1;
      const auto block = shape.block == ResidualBlock::basic ? basic : bottleneck;
      x = block(net, name, x, std::int64_t{64} << stage, stride);
    }
  }
  x = net.average_pool_to(x, 1);
  net.linear("fc", 1, x.channels, 1000);
  net.cross_entropy(1000);
  return std::move(net).take();
}

}  // namespace dear::zoo
