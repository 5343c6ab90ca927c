#include "dear/schedule/codec/kept.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::codec {

std::int64_t kept(std::int64_t elements, double ratio) {
  const auto part = static_cast<std::int64_t>(std::floor(ratio * static_cast<double>(elements)));
  return std::min(elements, std::max<std::int64_t>(part, 1));
}

KeptSegments::KeptSegments(Compression compression, std::vector<Segment> segments)
    : compression_(std::move(compression)), segments_(std::move(segments)) {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  std::int64_t end = 0;
  for (const Segment& segment : segments_) {
    if (segment.range.begin < end || segment.range.size() < 0) {
      throw ConfigError(
          fmt::format("the segment of elements {} to {} begins before the one in front of it ends: "
                      "sort segments by where they lie",
                      segment.range.begin, segment.range.end));
    }
    end = segment.range.end;
    if (segment.range.size() > kMost) {
      throw ConfigError(
          fmt::format("{} elements are too many to be compressed together, {} are the most: "
                      "compress by tensor or by bucket",
                      segment.range.size(), kMost));
    }
  }
}

std::int64_t KeptSegments::total(std::int64_t step) const {
  const double now = ratio(step);
  std::int64_t sum = 0;
  for (const Segment& segment : segments_) sum += kept(segment.range.size(), now);
  return sum;
}

float KeptSegments::scale(std::int64_t elements, std::int64_t coordinates) const {
  if (!compression_.unbiased) {
    return 1;
  }
  return static_cast<float>(static_cast<double>(elements) / static_cast<double>(coordinates));
}

}  // namespace dear::codec
