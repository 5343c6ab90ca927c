#include "dear/train/torch_backend/staging_ring.h"

#include <algorithm>

#include "dear/base/os/cache_line.h"

namespace dear::torch_backend {

std::optional<std::int64_t> StagingRing::take(std::int64_t bytes) {
  const std::int64_t begin = next_ + bytes > bytes_ ? 0 : next_;
  const std::int64_t end = begin + os::whole_cache_lines(bytes);
  const bool free = std::none_of(taken_.begin(), taken_.end(),
                                 [&](const Place& place) { return begin < place.end && place.begin < end; });
  if (!free) return std::nullopt;
  taken_.push_back({begin, end});
  next_ = end;
  return begin;
}

void StagingRing::give_back(std::int64_t offset) {
  std::erase_if(taken_, [&](const Place& place) { return place.begin == offset; });
}

}  // namespace dear::torch_backend
