#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/coordinate.h"
#include "dear/schedule/codec/kept.h"

namespace dear::codec {

// The gatherable codecs whose payload is, for each segment, kept() coordinates in ascending order.
class Coordinates : public Gatherable {
 public:
  [[nodiscard]] std::int64_t bytes(std::int64_t step) const final;
  [[nodiscard]] std::int64_t most_bytes() const final;
  void encode(std::span<const float> values, std::int64_t step, std::byte* payload) final;
  void add(const std::byte* payload, std::int64_t step, float scale, std::span<float> values) final;
  void take_out(const std::byte* payload, std::int64_t step, std::span<float> values) final;

 protected:
  explicit Coordinates(KeptSegments kept) : kept_(std::move(kept)) {}
  // Fills `chosen` from the values of one segment.
  virtual void choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
                      std::span<Coordinate> chosen) = 0;
  [[nodiscard]] const KeptSegments& kept_segments() const { return kept_; }

 private:
  KeptSegments kept_;
};

}  // namespace dear::codec
