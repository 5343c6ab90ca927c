#include <algorithm>

#include "dear/comm/buckets/bucket_codec.h"

// Payloads that add up: one part, averaged as a dense bucket is.
namespace dear::buckets {
namespace {

class Reduced : public BucketCodec {
 public:
  explicit Reduced(const CodecOf& of)
      : ranks_(of.group.size()),
        codec_(codec::make_reducible(of.compression, segments_of(of))),
        payload_(of.group.allocate(padded(codec_->most_elements(), codec_->dtype(), ranks_) *
                                   size_of(codec_->dtype()))),
        own_(of.compression.feedback && codec_->dtype() != DType::f32
                 ? static_cast<std::size_t>(payload_.bytes())
                 : 0) {}

  [[nodiscard]] std::uint8_t parts() const override { return 1; }

  void encode(std::uint8_t /*round*/, std::span<const float> values, std::int64_t step) override {
    codec_->encode(values, step, payload_.data());
    zero_padding(payload_.data(), codec_->dtype(), codec_->elements(step), count(step));
    // Rounding leaves something of what travels, which the reduced payload does not show any more.
    if (!own_.empty()) std::copy_n(payload_.data(), count(step) * size_of(codec_->dtype()), own_.data());
  }

  Request request(Collective collective, std::uint8_t /*part*/, std::int64_t step) override {
    return {.collective = collective,
            .view = {.buffer = payload_, .count = count(step), .dtype = codec_->dtype()},
            .reduction = Reduction::average};
  }

  void decode(std::span<float> values, std::int64_t step) override {
    std::fill(values.begin(), values.end(), 0.0F);
    codec_->decode(payload_.data(), step, values);
  }

  void take_out(std::span<float> values, std::int64_t step) override {
    codec_->take_out(own_.empty() ? payload_.data() : own_.data(), step, values);
  }

  [[nodiscard]] std::int64_t bytes() const override {
    return payload_.bytes() + static_cast<std::int64_t>(own_.size());
  }

 private:
  [[nodiscard]] std::int64_t count(std::int64_t step) const {
    return padded(codec_->elements(step), codec_->dtype(), ranks_);
  }

  const int ranks_;
  std::unique_ptr<codec::Reducible> codec_;
  Buffer payload_;
  std::vector<std::byte> own_;  // this rank's payload, with feedback
};

}  // namespace

std::unique_ptr<BucketCodec> make_reduced(const CodecOf& of) { return std::make_unique<Reduced>(of); }

}  // namespace dear::buckets
