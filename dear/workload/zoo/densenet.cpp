#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// Huang et al. 2017, arXiv 1608.06993, as torchvision has it, without its memory-efficient variant: each
// dense layer concatenates all before it anew, and keeps the copy.
namespace dear::zoo {
namespace {

void norm_relu(Builder& net, const std::string& name, Image image) {
  net.batch_norm(name, image);
  net.relu(image.elements());
}

// Its output is copied into the next concatenation at once.
Image dense_layer(Builder& net, const std::string& name, Image in, std::int64_t growth) {
  norm_relu(net, name + ".norm1", in);
  const Image x = net.conv(name + ".conv1", in, 4 * growth, square(1));
  norm_relu(net, name + ".norm2", x);
  net.conv(name + ".conv2", x, growth, square(3, 1, 1), {.bias = false, .keep_output = false});
  const Image out{.channels = in.channels + growth, .height = in.height, .width = in.width};
  net.concatenate(out.elements());
  return out;
}

Image transition(Builder& net, const std::string& name, Image in) {
  norm_relu(net, name + ".norm", in);
  const Image x =
      net.conv(name + ".conv", in, in.channels / 2, square(1), {.bias = false, .keep_output = false});
  return net.average_pool(x, square(2, 2));
}

}  // namespace

Architecture densenet(const DenseNet& shape, std::int64_t side) {
  Builder net;
  Image x = net.conv("features.conv0", {.channels = 3, .height = side, .width = side}, shape.channels,
                     square(7, 2, 3));
  norm_relu(net, "features.norm0", x);
  x = net.max_pool(x, square(3, 2, 1));
  for (int block = 0; block < 4; ++block) {
    for (std::int64_t layer = 0; layer < shape.blocks[block]; ++layer) {
      x = dense_layer(net, fmt::format("features.denseblock{}.denselayer{}", block + 1, layer + 1), x,
                      shape.growth);
    }
    if (block < 3) x = transition(net, fmt::format("features.transition{}", block + 1), x);
  }
  norm_relu(net, "features.norm5", x);
  x = net.average_pool_to(x, 1);
  net.linear("classifier", 1, x.channels, 1000);
  net.cross_entropy(1000);
  return std::move(net).take();
}

}  // namespace dear::zoo
