#pragma once

#include <cstdint>

#include "dear/workload/zoo/architecture.h"

// The families of models, one a file. `side` is that of a square image of three channels, `length` that of a
// sequence. ConfigError where the architecture cannot take so small an image or so long a sequence.
namespace dear::zoo {

enum class ResidualBlock : std::uint8_t { basic, bottleneck };
struct ResNet {
  ResidualBlock block = ResidualBlock::bottleneck;
  std::int64_t blocks[4] = {};  // of each stage
};
Architecture resnet(const ResNet& shape, std::int64_t side);

struct DenseNet {
  std::int64_t growth = 32;
  std::int64_t channels = 64;   // after the stem
  std::int64_t blocks[4] = {};  // dense layers of each block
};
Architecture densenet(const DenseNet& shape, std::int64_t side);

Architecture inception_v4(std::int64_t side);
Architecture vgg16(std::int64_t side);

// The shape of encoders and decoders alike: width of the residual stream, of the layer between, and attention
// heads.
struct Transformer {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t inner_width = 0;
  std::int64_t key_heads = 0;  // of grouped-query attention; 0: as many as heads
};
Architecture bert(const Transformer& shape, std::int64_t length);
Architecture gpt2(const Transformer& shape, std::int64_t length);
Architecture llama(const Transformer& shape, std::int64_t length);
Architecture gnmt(std::int64_t length);
// `scale` widens the inner layers.
Architecture dlrm(std::int64_t scale);
Architecture vit(const Transformer& shape, std::int64_t patch, std::int64_t side);

}  // namespace dear::zoo
