#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/schedule/fusion/grouping.h"
#include "dear/workload/layers/workload.h"

// Where planned groupings may put the borders of buckets. For their own use.
namespace dear::fusion {

// The smallest possible buckets ("units"), in forward order, and the times of their computation.
struct LayerUnits {
  explicit LayerUnits(const Workload& workload);

  [[nodiscard]] std::size_t count() const { return grouping.size(); }
  // Bytes, and seconds of forward, of units [begin, end).
  [[nodiscard]] std::int64_t bytes(std::size_t begin, std::size_t end) const {
    return bytes_before[end] - bytes_before[begin];
  }
  [[nodiscard]] double forward(std::size_t begin, std::size_t end) const {
    return forward_at[end] - forward_at[begin];
  }
  // Whether the two units can be in one bucket.
  [[nodiscard]] bool together(std::size_t begin, std::size_t next) const {
    return grouping.buckets()[begin].dtype == grouping.buckets()[next].dtype;
  }

  Grouping grouping;
  double backward = 0;
  double forward_end = 0;
  std::vector<std::int64_t> bytes_before;
  std::vector<double> ready;       // when backward, begun at 0, has left the unit's gradients
  std::vector<double> forward_at;  // when forward, begun at 0 and never waiting, reaches the unit
};

// Borders of buckets: units [borders[i], borders[i + 1]) are bucket i.
using Borders = std::vector<std::size_t>;

// The grouping with these borders.
Grouping join(const Workload& workload, const LayerUnits& units, const Borders& borders);

}  // namespace dear::fusion
