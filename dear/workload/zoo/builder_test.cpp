#include "dear/workload/zoo/builder.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/workload/zoo/families.h"

namespace dear::zoo::builder_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Image kImage{.channels = 3, .height = 8, .width = 8};

// Two convolutions, so that the second has an input with a gradient.
TEST(Builder, CountsAConvolutionByPencil) {
  Builder net;
  const Image x = net.conv("first", kImage, 4, square(3, 1, 1));
  const Image y = net.conv("second", x, 5, square(3, 2, 1), {.bias = true});
  const Architecture architecture = std::move(net).take();

  EXPECT_EQ(x.elements(), 4 * 8 * 8);
  EXPECT_EQ(y.channels, 5);
  EXPECT_EQ(y.height, 4);
  EXPECT_EQ(y.width, 4);
  const Architecture::Layer& first = architecture.layers[0];
  ASSERT_EQ(first.parameters.size(), 1U);
  EXPECT_EQ(first.parameters[0].elements, 3 * 3 * 3 * 4);
  EXPECT_DOUBLE_EQ(flops(first.forward), 2.0 * 3 * 3 * 3 * 4 * 8 * 8);
  EXPECT_DOUBLE_EQ(flops(first.backward), flops(first.forward)) << "its input has no gradient";
  EXPECT_DOUBLE_EQ(first.forward[0].moved, 3 * 64 + 4 * 64);
  EXPECT_DOUBLE_EQ(first.forward[0].weights, 108);
  EXPECT_EQ(first.kept_elements, 4 * 64);

  const Architecture::Layer& second = architecture.layers[1];
  ASSERT_EQ(second.parameters.size(), 2U);
  EXPECT_EQ(second.parameters[1].elements, 5);
  EXPECT_DOUBLE_EQ(flops(second.forward), 2.0 * 3 * 3 * 4 * 5 * 4 * 4);
  EXPECT_DOUBLE_EQ(flops(second.backward), 2 * flops(second.forward));
  EXPECT_EQ(architecture.parameters(), 108 + 180 + 5);
  EXPECT_EQ(architecture.tensors(), 3);
}

TEST(Builder, CountsABatchNormAndItsRunningMeans) {
  Builder net;
  net.batch_norm("norm", kImage);
  net.relu(kImage.elements());
  const Architecture architecture = std::move(net).take();
  EXPECT_EQ(architecture.parameters(), 6);
  EXPECT_EQ(architecture.buffer_bytes(), 2 * 3 * 4 + 8);
  EXPECT_EQ(architecture.buffers(), 3);
  EXPECT_EQ(architecture.kept_elements(), 192) << "the rectifier works in place";
  EXPECT_DOUBLE_EQ(architecture.forward_flops(), 0);
  ASSERT_EQ(architecture.layers[0].forward.size(), 2U);
  EXPECT_DOUBLE_EQ(architecture.layers[0].forward[0].moved, 3 * 192);
  EXPECT_DOUBLE_EQ(architecture.layers[0].backward[0].moved, 5 * 192);
}

TEST(Builder, CountsAPool) {
  Builder net;
  net.batch_norm("norm", kImage, {.keep_output = false});
  const Image out = net.max_pool(kImage, square(2, 2));
  const Architecture architecture = std::move(net).take();
  EXPECT_EQ(out.elements(), 3 * 4 * 4);
  EXPECT_EQ(architecture.kept_elements(), 48);
  EXPECT_EQ(architecture.kept_bytes(), 8 * 48);
}

TEST(Builder, TiesAWeightWithoutCountingItTwice) {
  Builder net;
  net.embedding("words", 4, 100, 8);
  net.tied_linear("head", 4, 8, 100, "words.weight");
  const Architecture architecture = std::move(net).take();
  EXPECT_EQ(architecture.parameters(), 800);
  EXPECT_TRUE(architecture.layers[1].parameters.empty());
  EXPECT_EQ(architecture.layers[1].tied, std::vector<std::string>{"words.weight"});
  EXPECT_DOUBLE_EQ(architecture.forward_flops(), 2.0 * 4 * 8 * 100);
  EXPECT_DOUBLE_EQ(architecture.layers[0].forward[0].weights, 0);
  EXPECT_DOUBLE_EQ(architecture.layers[0].backward[0].weights, 800) << "its gradient is a whole table";
}

// Both ways of attention do 4 · length² · width operations; the fused one keeps no probabilities.
TEST(Builder, CountsAttention) {
  const auto attention = [](bool fused) {
    Builder net;
    net.embedding("words", 16, 100, 12, {.keep_output = false});
    net.attention({.length = 16, .heads = 3, .head_width = 4, .fused = fused});
    return std::move(net).take();
  };
  EXPECT_DOUBLE_EQ(attention(false).forward_flops(), 4.0 * 16 * 16 * 12);
  EXPECT_DOUBLE_EQ(attention(true).forward_flops(), 4.0 * 16 * 16 * 12);
  EXPECT_DOUBLE_EQ(flops(attention(false).layers[0].backward), 2 * 4.0 * 16 * 16 * 12);
  EXPECT_EQ(attention(false).kept_elements(), 16 * 12 + 3 * 16 * 16);
  EXPECT_EQ(attention(true).kept_elements(), 16 * 12);
  EXPECT_EQ(attention(true).kept_bytes(), 3 * 16 * 4);
}

TEST(Builder, RefusesAWindowLargerThanTheImage) {
  EXPECT_THAT([] { Builder().conv("c", kImage, 1, square(9)); },
              ThrowsMessage<ConfigError>(HasSubstr("a window of 9 x 9 does not fit")));
  EXPECT_THAT([] { inception_v4(64); }, ThrowsMessage<ConfigError>(HasSubstr("choose larger images")));
  EXPECT_THAT([] { gpt2({.layers = 1, .width = 64, .heads = 1, .inner_width = 256}, 1025); },
              ThrowsMessage<ConfigError>(HasSubstr("a sequence of 1025 is beyond")));
}

// Korthikanti et al. 2022, arXiv 2205.05198, equation 1: a layer keeps s·b·h·(34 + 5·a·s/h) bytes in 16 bits.
TEST(Families, TransformerLayersKeepWhatKorthikantiCounts) {
  std::mt19937 random(7);
  const auto from = [&](int least, int most) {
    return std::int64_t{std::uniform_int_distribution<int>(least, most)(random)};
  };
  for (int i = 0; i < 50; ++i) {
    const std::int64_t heads = from(1, 16);
    const std::int64_t width = heads * from(1, 128);
    const std::int64_t length = from(1, 512);
    Transformer shape{.layers = 1, .width = width, .heads = heads, .inner_width = 4 * width};
    for (const auto family : {gpt2, bert}) {
      shape.layers = 2;
      const Architecture two = family(shape, length);
      shape.layers = 3;
      const Architecture three = family(shape, length);
      const std::int64_t bytes =
          2 * (three.kept_elements() - two.kept_elements()) + three.kept_bytes() - two.kept_bytes();
      EXPECT_EQ(bytes, 34 * length * width + 5 * heads * length * length);
    }
  }
}

// Narayanan et al. 2021, arXiv 2104.04473, equation 3 for forward alone: 24·B·s·l·h²·(1 + s/(6h) +
// V/(12·l·h)).
TEST(Families, TransformersDoWhatNarayananCounts) {
  const double s = 1024;
  const double l = 12;
  const double h = 768;
  const Architecture gpt = gpt2({.layers = 12, .width = 768, .heads = 12, .inner_width = 3072}, 1024);
  EXPECT_DOUBLE_EQ(gpt.forward_flops(), 24 * s * l * h * h * (1 + s / (6 * h) + 50257 / (12 * l * h)));
}

// Touvron et al. 2023: with keys shared by 8, their projections shrink to an eighth.
TEST(Families, SharedKeysShrinkTheirProjections) {
  Transformer shape{.layers = 1, .width = 64, .heads = 8, .inner_width = 128};
  const std::int64_t all = llama(shape, 16).parameters();
  shape.key_heads = 1;
  EXPECT_EQ(all - llama(shape, 16).parameters(), 2 * 64 * (64 - 8));
}

}  // namespace
}  // namespace dear::zoo::builder_test
