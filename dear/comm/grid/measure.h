#pragma once

#include <memory>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/group/backend.h"
#include "dear/platform/algorithm/grid.h"
#include "dear/platform/cost/chunk_times.h"

namespace dear::grid {

// Measures the lines of a grid, so that collectives over it can be planned: along each dimension
// reduce-scatters and all-gathers of a few sizes on all lines at once, the slowest of which counts, fitted by
// a start-up and seconds a byte; and pairs of dimensions at once, which share a lane where they take each
// other's time. Takes about a second, more on networks of less than 10 MB/s. All ranks get rank 0's numbers.
// A collective; `whole` is free meanwhile.
cost::ChunkNetwork measure_lines(Backend& whole, const std::vector<std::unique_ptr<Backend>>& lines,
                                 const algorithm::Grid& grid, Deadline deadline);

// "dimension 0: 11.8 MB/s, start-up 90 us; ...": what a rank sends into each dimension in a second.
std::string describe(const cost::ChunkNetwork& network);

// The link on which a ring along this dimension takes the times of the network.
Link link_of_line(const cost::ChunkNetwork& network, int dimension);

}  // namespace dear::grid
