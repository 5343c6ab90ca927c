#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/fusion/grouping.h"
#include "dear/workload/workload.h"

// Among what borders of buckets are sought. For the planned groupings' own use.
namespace dear::fusion {

// The smallest buckets there are, in forward order, and the time around them.
struct LayerUnits {
  explicit LayerUnits(const Workload& workload);

  [[nodiscard]] std::size_t count() const { return grouping.size(); }
  // Units [begin, end) as one bucket.
  [[nodiscard]] std::int64_t bytes(std::size_t begin, std::size_t end) const {
    return bytes_before[end] - bytes_before[begin];
  }
  [[nodiscard]] double forward(std::size_t begin, std::size_t end) const {
    return forward_at[end] - forward_at[begin];
  }
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

// Units [borders[i], borders[i + 1]) are a bucket.
using Borders = std::vector<std::size_t>;

Grouping join(const Workload& workload, const LayerUnits& units, const Borders& borders);

}  // namespace dear::fusion
