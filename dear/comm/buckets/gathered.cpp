#include <algorithm>
#include <cstring>

#include "dear/comm/buckets/bucket_codec.h"

// Payloads that each rank chooses by itself: one part, gathered on all ranks and added up in their order.
namespace dear::buckets {
namespace {

class Gathered : public BucketCodec {
 public:
  explicit Gathered(const CodecOf& of)
      : rank_(of.group.rank()),
        ranks_(of.group.size()),
        codec_(codec::make_gatherable(of.compression, segments_of(of), rank_)),
        payloads_(of.group.allocate(ranks_ * padded(codec_->most_bytes(), DType::u8, 1))) {}

  [[nodiscard]] std::uint8_t parts() const override { return 1; }

  void encode(std::uint8_t /*round*/, std::span<const float> values, std::int64_t step) override {
    codec_->encode(values, step, payload(rank_, step));
    zero_padding(payload(rank_, step), DType::u8, codec_->bytes(step), room(step));
  }

  Request request(Collective collective, std::uint8_t /*part*/, std::int64_t step) override {
    return {.collective = collective,
            .view = {.buffer = payloads_, .count = ranks_ * room(step), .dtype = DType::u8}};
  }

  void decode(std::span<float> values, std::int64_t step) override {
    std::fill(values.begin(), values.end(), 0.0F);
    const float share = 1.0F / static_cast<float>(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) codec_->add(payload(rank, step), step, share, values);
  }

  void take_out(std::span<float> values, std::int64_t step) override {
    codec_->take_out(payload(rank_, step), step, values);
  }

  [[nodiscard]] std::int64_t bytes() const override { return payloads_.bytes(); }

 private:
  [[nodiscard]] std::int64_t room(std::int64_t step) const {
    return padded(codec_->bytes(step), DType::u8, 1);
  }
  [[nodiscard]] std::byte* payload(int rank, std::int64_t step) const {
    return payloads_.data() + rank * room(step);
  }

  const int rank_, ranks_;
  std::unique_ptr<codec::Gatherable> codec_;
  Buffer payloads_;
};

}  // namespace

std::unique_ptr<BucketCodec> make_gathered(const CodecOf& of) { return std::make_unique<Gathered>(of); }

}  // namespace dear::buckets
