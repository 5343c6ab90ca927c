#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dear/schedule/codec/coordinates.h"
#include "dear/schedule/codec/kept.h"
#include "dear/schedule/codec/kernels.h"

namespace dear::codec {

// Chooses the coordinates of largest magnitude: exactly, of equal ones those of smaller index, and NaN before
// every number. In time proportional to the elements for any input, and that of reading them once for most.
class Selection {
 public:
  explicit Selection(const Kernels& kernels = codec::kernels()) : kernels_(&kernels) {}
  // Fills `chosen`, of at most as many as there are values, in ascending order of indices.
  void largest(std::span<const float> values, std::span<Coordinate> chosen);

 private:
  // Returns an order that somewhat more than `count` of the values have or exceed, by a sample; 0 where it
  // cannot tell.
  std::uint32_t guess(std::span<const float> values, std::int64_t count);
  // Goes through all values; false where fewer than asked for have the order `floor`.
  bool collect(std::span<const float> values, std::uint32_t floor, std::span<Coordinate> chosen);

  const Kernels* kernels_;
  std::vector<Coordinate> candidates_;
};

// The coordinates of largest magnitude of each segment, each rank its own.
class TopK final : public Coordinates {
 public:
  explicit TopK(KeptSegments kept) : Coordinates(std::move(kept)) {}

 private:
  void choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
              std::span<Coordinate> chosen) override;

  Selection selection_;
};

}  // namespace dear::codec
