#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/range.h"
#include "dear/schedule/codec/compression.h"

namespace dear::codec {

// A part of a flat buffer that is encoded by itself: of each segment max(1, floor(ratio x elements))
// coordinates travel.
struct Segment {
  Range range;            // elements of the buffer; segments are ascending and do not overlap
  std::uint64_t key = 0;  // for what is drawn: the same on every rank, and wherever the segment lies
};

// [Note: reducible and gatherable] Payloads of a reducible codec add up: the encoding of a sum is the sum of
// the encodings, so that they travel by reduce-scatter and all-gather, or all-reduce, as dense gradients do.
// Payloads of a gatherable codec name their own coordinates, so that each rank needs those of every other.
//
// Both kinds: encode() reads `values` (the whole flat buffer) at the segments and changes nothing of it.
// Drawn coordinates depend on the seed, the step and the segment's key alone. Buffers of payloads need not be
// aligned beyond their element. Elements of a payload that pad it are zero. An object serves one thread at a
// time; it keeps room for its work, and allocates nothing after the first step. No method looks for NaN: one
// counts as larger than every number.

class Reducible {
 public:
  virtual ~Reducible() = default;
  [[nodiscard]] virtual DType dtype() const = 0;  // of the payload
  // Elements of the payload in this step, without padding; the most in any step.
  [[nodiscard]] virtual std::int64_t elements(std::int64_t step) const = 0;
  [[nodiscard]] virtual std::int64_t most_elements() const = 0;
  virtual void encode(std::span<const float> values, std::int64_t step, std::byte* payload) = 0;
  // Writes what the payload carries into `values`, which is zero at the segments before. Only here are values
  // scaled where the scheme is unbiased, so that payloads add up exactly where the values do.
  virtual void decode(const std::byte* payload, std::int64_t step, std::span<float> values) = 0;
  // Takes out of `values` what encode() put into `payload`: coordinates that travelled become zero, or what
  // rounding left of them.
  virtual void take_out(const std::byte* payload, std::int64_t step, std::span<float> values) = 0;
};

class Gatherable {
 public:
  virtual ~Gatherable() = default;
  // Bytes of one rank's payload in this step, a multiple of 8: (index of 4 bytes, value of 4 bytes) for each
  // coordinate, or for a block its index and its values. The most in any step.
  [[nodiscard]] virtual std::int64_t bytes(std::int64_t step) const = 0;
  [[nodiscard]] virtual std::int64_t most_bytes() const = 0;
  virtual void encode(std::span<const float> values, std::int64_t step, std::byte* payload) = 0;
  // Adds `scale` times what one rank's payload carries to `values`. MismatchError, and `values` changed in
  // part, for a payload that names coordinates outside of its segment: it is another rank's.
  virtual void add(const std::byte* payload, std::int64_t step, float scale, std::span<float> values) = 0;
  // Zeroes in `values` the coordinates that a payload of this rank carries. MismatchError likewise.
  virtual void take_out(const std::byte* payload, std::int64_t step, std::span<float> values) = 0;
};

// The codec of random_k and random_block with shared indices, fp16 and bf16; that of top_k, block_top_k and
// the random schemes with own indices, where `rank` is this rank. ConfigError for a scheme of the other kind,
// or of neither (low_rank.h, sketch.h), and for a buffer of more than 2^32 elements.
std::unique_ptr<Reducible> make_reducible(const Compression& compression, std::vector<Segment> segments);
std::unique_ptr<Gatherable> make_gatherable(const Compression& compression, std::vector<Segment> segments,
                                            int rank);

}  // namespace dear::codec
