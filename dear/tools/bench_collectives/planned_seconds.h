#pragma once

#include <cstdint>
#include <optional>

#include "dear/comm/backends/init.h"
#include "dear/tools/bench_collectives/measured_operation.h"

namespace dear::bench_collectives {

// How long the operation takes on the links of a grid's cluster, as its chunk plans have it. Nothing where
// links are measured, and for an operation that does not go in chunks.
std::optional<double> planned_seconds(const GridSettings& grid, MeasuredOperation operation,
                                      std::int64_t bytes);

}  // namespace dear::bench_collectives
