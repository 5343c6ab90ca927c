#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dear/schedule/codec/codec.h"

namespace dear::codec {

// Returns how many of `elements` coordinates travel at a ratio: max(1, floor(ratio x elements)), none of
// none.
std::int64_t kept(std::int64_t elements, double ratio);

// KeptSegments has the segments of a buffer, and says how many coordinates of each travel in
// each step. Immutable.
class KeptSegments {
 public:
  // ConfigError where a segment has more than 2^32 elements, which indices of 4 bytes cannot name, or where
  // segments are not ascending.
  KeptSegments(Compression compression, std::vector<Segment> segments);

  [[nodiscard]] const Compression& compression() const { return compression_; }
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
  [[nodiscard]] double ratio(std::int64_t step) const { return compression_.ratio_at(step); }
  // The coordinates that travel in this step, of all segments; the most in any step, the ratio never grows.
  [[nodiscard]] std::int64_t total(std::int64_t step) const;
  [[nodiscard]] std::int64_t most() const { return total(0); }
  // The factor of a decoded coordinate: elements/coordinates if unbiased, else 1.
  [[nodiscard]] float scale(std::int64_t elements, std::int64_t coordinates) const;

 private:
  Compression compression_;
  std::vector<Segment> segments_;
};

}  // namespace dear::codec
