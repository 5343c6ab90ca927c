#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "dear/base/vocabulary/collective.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/cost/chunk_times.h"

namespace dear::cost {

// Seconds of collectives in chunks for any size, from plans for some. Any thread.
class ChunkSeconds {
 public:
  // `algorithm` is one of chunk_planners().
  ChunkSeconds(ChunkNetwork network, std::string algorithm)
      : network_(std::move(network)), algorithm_(std::move(algorithm)) {}

  [[nodiscard]] const std::string& algorithm() const { return algorithm_; }
  // The collective is one of shards, the size 0 bytes or more.
  [[nodiscard]] double seconds(Collective collective, std::int64_t bytes) const;

 private:
  // Sizes for which plans are made: 0, and from 64 bytes on four to an octave.
  static constexpr int kSizes = 1 + 4 * 50;
  static double bytes_at(int size);
  struct Known {
    std::once_flag once;
    double seconds = 0;
  };
  [[nodiscard]] double seconds_at(Collective collective, int size) const;

  ChunkNetwork network_;
  std::string algorithm_;
  mutable std::array<std::array<Known, kSizes>, 3> known_;  // by collective, by size
};

}  // namespace dear::cost
