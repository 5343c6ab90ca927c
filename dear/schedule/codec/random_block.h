#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "dear/schedule/codec/blocks.h"
#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/kept.h"

namespace dear::codec {

// A block of neighbours that begins at an element that is drawn, each equally likely, and goes on at the
// segment's beginning where it reaches beyond its end: every coordinate travels equally often. The place is
// the same on every rank, so that a slice of memory travels, in fp32.
class RandomBlock final : public Reducible {
 public:
  explicit RandomBlock(KeptSegments kept) : kept_(std::move(kept)) {}
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  [[nodiscard]] std::int64_t elements(std::int64_t step) const override { return kept_.total(step); }
  [[nodiscard]] std::int64_t most_elements() const override { return kept_.most(); }
  void encode(std::span<const float> values, std::int64_t step, std::byte* payload) override;
  void decode(const std::byte* payload, std::int64_t step, std::span<float> values) override;
  void take_out(const std::byte* payload, std::int64_t step, std::span<float> values) override;

 private:
  KeptSegments kept_;
};

// A random block at a place that each rank draws for itself, and sends along.
class OwnRandomBlock final : public Blocks {
 public:
  OwnRandomBlock(KeptSegments kept, int rank) : Blocks(std::move(kept)), rank_(rank) {}

 private:
  std::int64_t choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
                      std::int64_t count) override;

  int rank_;
};

}  // namespace dear::codec
