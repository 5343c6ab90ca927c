#include "dear/schedule/codec/low_rank.h"

#include <algorithm>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/buckets/bucket_codec.h"

// Two factors of each matrix: part 0 the left ones, part 1 the right ones, which are made of the mean of the
// left.
namespace dear::buckets {
namespace {

std::vector<codec::Matrix> matrices_of(const std::vector<EncodedTensor>& tensors) {
  std::vector<codec::Matrix> matrices;
  for (const EncodedTensor& tensor : tensors)
    matrices.push_back({.range = tensor.range, .rows = tensor.rows, .key = tensor.key});
  return matrices;
}

class LowRank : public BucketCodec {
 public:
  explicit LowRank(const CodecOf& of)
      : codec_(of.compression.rank, of.compression.seed, matrices_of(of.tensors)),
        lefts_(padded(codec_.p_elements(), DType::f32, of.group.size())),
        rights_(padded(codec_.q_elements(), DType::f32, of.group.size())),
        left_(of.group.allocate(lefts_ * size_of(DType::f32))),
        right_(of.group.allocate(rights_ * size_of(DType::f32))),
        own_(of.compression.feedback ? static_cast<std::size_t>(codec_.q_elements()) : 0) {}

  [[nodiscard]] std::uint8_t parts() const override { return 2; }

  void encode(std::uint8_t round, std::span<const float> values, std::int64_t /*step*/) override {
    if (round == 0) {
      codec_.encode_p(values, left());
    } else {
      codec_.encode_q(values, left(), right());
      if (!own_.empty()) std::copy_n(right().begin(), own_.size(), own_.begin());
    }
  }

  Request request(Collective collective, std::uint8_t part, std::int64_t /*step*/) override {
    return {.collective = collective,
            .view = {.buffer = part == 0 ? left_ : right_, .count = part == 0 ? lefts_ : rights_},
            .reduction = Reduction::average};
  }

  void decode(std::span<float> values, std::int64_t /*step*/) override {
    std::fill(values.begin(), values.end(), 0.0F);
    codec_.decode(left(), right(), values);
  }

  // This rank's part of what was decoded: the mean of all ranks' right factors is that of the product.
  void take_out(std::span<float> values, std::int64_t /*step*/) override {
    codec_.take_out(left(), own_, values);
  }

  [[nodiscard]] std::vector<float> memory(std::size_t tensor) const override {
    const Range part = codec_.state_of(tensor);
    const std::span<const float> state = codec_.state();
    return {state.begin() + part.begin, state.begin() + part.end};
  }
  void set_memory(std::size_t tensor, std::span<const float> memory) override {
    const Range part = codec_.state_of(tensor);
    if (static_cast<std::int64_t>(memory.size()) != part.size())
      throw ConfigError(
          "the state of a compression has factors of another rank or shape: load the state of the same "
          "compression and model");
    std::copy(memory.begin(), memory.end(), codec_.state().begin() + part.begin);
  }

  [[nodiscard]] std::int64_t bytes() const override {
    return left_.bytes() + right_.bytes() + static_cast<std::int64_t>(own_.size() * sizeof(float));
  }

 private:
  [[nodiscard]] std::span<float> left() const {
    return {reinterpret_cast<float*>(left_.data()), static_cast<std::size_t>(codec_.p_elements())};
  }
  [[nodiscard]] std::span<float> right() const {
    return {reinterpret_cast<float*>(right_.data()), static_cast<std::size_t>(codec_.q_elements())};
  }

  codec::LowRank codec_;
  const std::int64_t lefts_, rights_;  // elements that travel, padding included
  Buffer left_, right_;
  std::vector<float> own_;  // this rank's right factors, with feedback
};

}  // namespace

std::unique_ptr<BucketCodec> make_low_rank(const CodecOf& of) { return std::make_unique<LowRank>(of); }

}  // namespace dear::buckets
