#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/compression.h"
#include "dear/schedule/policies/encoding.h"

namespace dear::buckets {

// A tensor of the encoded part of a bucket's flat buffer.
struct EncodedTensor {
  Range range;            // elements of the buffer
  std::uint64_t key = 0;  // the same on every rank and in any bucket
  std::int64_t rows = 0;  // of the matrix that it is; 0 for none
};

// CodecCounts counts what the codec of a bucket had to do on one rank since it was made.
struct CodecCounts {
  std::int64_t dense_exchanges = 0;  // of buckets that could not travel encoded
  int not_finite_rank = -1;          // the last rank that an index met NaN or infinity from; -1 for none
};

// The payloads of one bucket: buffers of the group, how they are filled from the flat gradients and emptied
// into them again, and the requests that carry them. One thread at a time; which steps come before which is
// the schedule's ([Note: encoded buckets]).
class BucketCodec {
 public:
  virtual ~BucketCodec() = default;
  // Parts that travel; those of `encodings_of()` without that of dense tensors.
  [[nodiscard]] virtual std::uint8_t parts() const = 0;
  // `values`: the encoded part of the flat gradients. A later round reads what has come.
  virtual void encode(std::uint8_t round, std::span<const float> values, std::int64_t step) = 0;
  // Returns the request of a collective on a part in this step.
  [[nodiscard]] virtual Request request(Collective collective, std::uint8_t part, std::int64_t step) = 0;
  // The collective on a part may ask for another one, by what has come: the same on every rank.
  [[nodiscard]] virtual bool may_ask_more(Collective /*collective*/, std::uint8_t /*part*/) const {
    return false;
  }
  [[nodiscard]] virtual std::optional<Request> more() { return std::nullopt; }
  // Writes the mean over ranks into `values`, whatever is there.
  virtual void decode(std::span<float> values, std::int64_t step) = 0;
  // Takes what this rank has sent out of `values`.
  virtual void take_out(std::span<float> values, std::int64_t step) = 0;
  // The codec's own memory of a tensor from step to step, beyond Feedback; empty for none.
  [[nodiscard]] virtual std::vector<float> memory(std::size_t /*tensor*/) const { return {}; }
  virtual void set_memory(std::size_t /*tensor*/, std::span<const float> /*memory*/) {}
  [[nodiscard]] virtual CodecCounts counts() const { return {}; }
  [[nodiscard]] virtual std::int64_t bytes() const = 0;  // of its buffers
};

// CodecOf names everything that a codec of a bucket is made of. `gradients`: the encoded part of the flat
// buffer.
struct CodecOf {
  const Compression& compression;
  const std::vector<EncodedTensor>& tensors;
  View gradients;
  Group group;
};

// Allocates on the group: all ranks together, in the same order.
std::unique_ptr<BucketCodec> make_reduced(const CodecOf& of);
std::unique_ptr<BucketCodec> make_gathered(const CodecOf& of);
std::unique_ptr<BucketCodec> make_low_rank(const CodecOf& of);
std::unique_ptr<BucketCodec> make_sketched(const CodecOf& of);
std::unique_ptr<BucketCodec> make_codec(const CodecOf& of);  // that of the scheme

// One segment for each tensor, or one for all, as the compression's scope says.
std::vector<codec::Segment> segments_of(const CodecOf& of);
// `elements` of a type, rounded up so that shards are equal (layout.h).
std::int64_t padded(std::int64_t elements, DType dtype, int ranks);
// Zeroes the elements of a payload from `used` up to `padded`.
void zero_padding(std::byte* payload, DType dtype, std::int64_t used, std::int64_t padded);

}  // namespace dear::buckets
