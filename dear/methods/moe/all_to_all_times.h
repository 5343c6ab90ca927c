#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "dear/platform/cluster/cluster.h"

namespace dear::methods::moe {

// Seconds of an all-to-all by the bytes that each rank has for all ranks together, its own among them.
// Between points along straight lines, below the smallest as the smallest, beyond the largest along the last
// line. One with sizes is reckoned as one of equal blocks with as many bytes: nothing is padded.
class AllToAllTimes {
 public:
  // Measured, or modelled. ConfigError unless there is a point, bytes ascend from 0 on, and seconds are
  // times.
  explicit AllToAllTimes(std::vector<std::pair<std::int64_t, double>> points);
  // A launch, then each block straight to its rank, one partner in a round, played on the links of the
  // cluster from 1 KiB to 256 MiB, sizes twice as large each time; of these only those that times of
  // `least` to `most` bytes need.
  static AllToAllTimes on(const Cluster& cluster, std::int64_t least = 0,
                          std::int64_t most = std::numeric_limits<std::int64_t>::max());

  [[nodiscard]] double seconds(std::int64_t bytes) const;  // 0 for no bytes

 private:
  std::vector<std::pair<std::int64_t, double>> points_;
};

}  // namespace dear::methods::moe
