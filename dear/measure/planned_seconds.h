#pragma once

#include <cstdint>
#include <optional>

#include "dear/backends/init.h"
#include "dear/measure/measured_operation.h"

namespace dear::measure {

// How long the operation takes on the links of a grid's cluster, as its chunk plans have it. Nothing where
// links are measured, and for an operation that does not go in chunks.
std::optional<double> planned_seconds(const GridSettings& grid, MeasuredOperation operation,
                                      std::int64_t bytes);

}  // namespace dear::measure
