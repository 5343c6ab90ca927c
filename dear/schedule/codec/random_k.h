#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/coordinates.h"
#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/kept.h"

namespace dear::codec {

// Coordinates that are drawn without replacement, each subset equally likely: the same on every rank, so that
// only values travel, in fp32 and ascending order.
class RandomK final : public Reducible {
 public:
  explicit RandomK(KeptSegments kept) : kept_(std::move(kept)) {}
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  [[nodiscard]] std::int64_t elements(std::int64_t step) const override { return kept_.total(step); }
  [[nodiscard]] std::int64_t most_elements() const override { return kept_.most(); }
  void encode(std::span<const float> values, std::int64_t step, std::byte* payload) override;
  void decode(const std::byte* payload, std::int64_t step, std::span<float> values) override;
  void take_out(const std::byte* payload, std::int64_t step, std::span<float> values) override;

 private:
  // Draws the coordinates of this step, unless they are those of the last call.
  void draw(std::int64_t step);

  KeptSegments kept_;
  SubsetDraw subsets_;
  std::int64_t step_ = -1;              // whose coordinates are drawn
  std::vector<std::uint32_t> indices_;  // of each segment in turn, within it
};

// Random-k with coordinates that each rank draws for itself, and sends along.
class OwnRandomK final : public Coordinates {
 public:
  OwnRandomK(KeptSegments kept, int rank) : Coordinates(std::move(kept)), rank_(rank) {}

 private:
  void choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
              std::span<Coordinate> chosen) override;

  int rank_;
  SubsetDraw subsets_;
  std::vector<std::uint32_t> indices_;
};

}  // namespace dear::codec
