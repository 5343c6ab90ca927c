#pragma once

#include <cstdint>

#include "dear/methods/edge/channel.h"
#include "dear/methods/edge/paba.h"

namespace dear::methods::edge {

// Workers in a cell: places, fading and frequencies are drawn, the rest is alike. Each direction has the
// bandwidth of the cell. A worker's efficiency is that over an equal part of the bandwidth. All numbers are
// this project's choice.
struct GroupsShape {
  Cell cell{};
  int groups = 20;
  int workers = 1;  // of a group
  std::int64_t parameters = 1'000'000;
  double bits_per_parameter = 16;
  double cycles_per_parameter = 2000;  // of a group's part of the samples, divided by its workers
  double slowest_hz = 1e8, fastest_hz = 1e9;
  std::uint64_t seed = 1;
};
// ConfigError for a shape that cannot be.
PabaProblem draw_groups(const GroupsShape& shape);

}  // namespace dear::methods::edge
