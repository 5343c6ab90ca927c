#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/kept.h"

namespace dear::codec {

// The gatherable codecs whose payload is, for each segment, one block of kept() neighbours: the index of the
// first (4 bytes), their values, and 4 bytes of zeros where that is no multiple of 8. A block that reaches
// beyond the end of its segment goes on at the beginning.
class Blocks : public Gatherable {
 public:
  [[nodiscard]] std::int64_t bytes(std::int64_t step) const final;
  [[nodiscard]] std::int64_t most_bytes() const final { return bytes(0); }  // the ratio never grows
  void encode(std::span<const float> values, std::int64_t step, std::byte* payload) final;
  void add(const std::byte* payload, std::int64_t step, float scale, std::span<float> values) final;
  void take_out(const std::byte* payload, std::int64_t step, std::span<float> values) final;

 protected:
  explicit Blocks(KeptSegments kept) : kept_(std::move(kept)) {}
  // Returns where the block of `count` elements begins in the values of a segment that is not empty.
  virtual std::int64_t choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
                              std::int64_t count) = 0;
  [[nodiscard]] const KeptSegments& kept_segments() const { return kept_; }

 private:
  KeptSegments kept_;
};

}  // namespace dear::codec
