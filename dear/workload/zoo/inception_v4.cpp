#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// Szegedy et al. 2017, arXiv 1602.07261, with the channels and the order of modules of the PyTorch port that
// the study of arXiv 2302.12445 used (pretrained-models.pytorch). The paper's images have a side of 299, the
// study's of 224.
namespace dear::zoo {
namespace {

constexpr Window kHalve = square(3, 2);

// A branch of a block: convolutions one after the other, each with a norm and a rectifier.
class Branch {
 public:
  Branch(Builder& net, std::string name, Image in) : net_(&net), name_(std::move(name)), image_(in) {}

  Branch& conv(std::int64_t channels, const Window& window = {}) {
    const std::string name = fmt::format("{}.{}", name_, number_++);
    image_ = net_->conv(name + ".conv", image_, channels, window);
    net_->batch_norm(name + ".bn", image_);
    net_->relu(image_.elements());
    return *this;
  }

  [[nodiscard]] Image end() const { return image_; }

 private:
  Builder* net_;
  std::string name_;
  Image image_;
  int number_ = 0;
};

Image joined(Builder& net, std::initializer_list<Image> images) {
  Image all = *images.begin();
  all.channels = 0;
  for (const Image& image : images) all.channels += image.channels;
  net.concatenate(all.elements());
  return all;
}

Image stem(Builder& net, Image in) {
  Image x = Branch(net, "features", in).conv(32, kHalve).conv(32, square(3)).conv(64, same(3, 3)).end();
  Image pooled = net.max_pool(x, kHalve);
  x = joined(net, {pooled, Branch(net, "features.3", x).conv(96, kHalve).end()});
  const Image left = Branch(net, "features.4.branch0", x).conv(64).conv(96, square(3)).end();
  const Image right = Branch(net, "features.4.branch1", x)
                          .conv(64)
                          .conv(64, same(1, 7))
                          .conv(64, same(7, 1))
                          .conv(96, square(3))
                          .end();
  x = joined(net, {left, right});
  const Image halved = Branch(net, "features.5", x).conv(192, kHalve).end();
  pooled = net.max_pool(x, kHalve);
  return joined(net, {halved, pooled});
}

Image block_a(Builder& net, const std::string& name, Image in) {
  const Image a = Branch(net, name + ".branch0", in).conv(96).end();
  const Image b = Branch(net, name + ".branch1", in).conv(64).conv(96, same(3, 3)).end();
  const Image c = Branch(net, name + ".branch2", in).conv(64).conv(96, same(3, 3)).conv(96, same(3, 3)).end();
  const Image d = Branch(net, name + ".branch3", net.average_pool(in, same(3, 3))).conv(96).end();
  return joined(net, {a, b, c, d});
}

Image reduction_a(Builder& net, const std::string& name, Image in) {
  const Image a = Branch(net, name + ".branch0", in).conv(384, kHalve).end();
  const Image b = Branch(net, name + ".branch1", in).conv(192).conv(224, same(3, 3)).conv(256, kHalve).end();
  return joined(net, {a, b, net.max_pool(in, kHalve)});
}

Image block_b(Builder& net, const std::string& name, Image in) {
  const Image a = Branch(net, name + ".branch0", in).conv(384).end();
  const Image b =
      Branch(net, name + ".branch1", in).conv(192).conv(224, same(1, 7)).conv(256, same(7, 1)).end();
  const Image c = Branch(net, name + ".branch2", in)
                      .conv(192)
                      .conv(192, same(7, 1))
                      .conv(224, same(1, 7))
                      .conv(224, same(7, 1))
                      .conv(256, same(1, 7))
                      .end();
  const Image d = Branch(net, name + ".branch3", net.average_pool(in, same(3, 3))).conv(128).end();
  return joined(net, {a, b, c, d});
}

Image reduction_b(Builder& net, const std::string& name, Image in) {
  const Image a = Branch(net, name + ".branch0", in).conv(192).conv(192, kHalve).end();
  const Image b = Branch(net, name + ".branch1", in)
                      .conv(256)
                      .conv(256, same(1, 7))
                      .conv(320, same(7, 1))
                      .conv(320, kHalve)
                      .end();
  return joined(net, {a, b, net.max_pool(in, kHalve)});
}

Image block_c(Builder& net, const std::string& name, Image in) {
  const Image a = Branch(net, name + ".branch0", in).conv(256).end();
  const Image b = Branch(net, name + ".branch1", in).conv(384).end();
  const Image b_wide = Branch(net, name + ".branch1_1a", b).conv(256, same(1, 3)).end();
  const Image b_high = Branch(net, name + ".branch1_1b", b).conv(256, same(3, 1)).end();
  const Image c =
      Branch(net, name + ".branch2", in).conv(384).conv(448, same(3, 1)).conv(512, same(1, 3)).end();
  const Image c_wide = Branch(net, name + ".branch2_3a", c).conv(256, same(1, 3)).end();
  const Image c_high = Branch(net, name + ".branch2_3b", c).conv(256, same(3, 1)).end();
  const Image d = Branch(net, name + ".branch3", net.average_pool(in, same(3, 3))).conv(256).end();
  return joined(net, {a, b_wide, b_high, c_wide, c_high, d});
}

}  // namespace

Architecture inception_v4(std::int64_t side) {
  Builder net;
  Image x = stem(net, {.channels = 3, .height = side, .width = side});
  int number = 6;  // of the block, after the stem's
  const auto repeat = [&](int times, auto block) {
    for (int i = 0; i < times; ++i) x = block(net, fmt::format("features.{}", number++), x);
  };
  repeat(4, block_a);
  repeat(1, reduction_a);
  repeat(7, block_b);
  repeat(1, reduction_b);
  repeat(3, block_c);
  x = net.average_pool_to(x, 1);
  net.linear("last_linear", 1, x.channels, 1000);
  net.cross_entropy(1000);
  return std::move(net).take();
}

}  // namespace dear::zoo
