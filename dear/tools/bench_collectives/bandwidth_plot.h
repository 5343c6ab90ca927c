#pragma once

#include <string>
#include <vector>

#include "dear/tools/bench_collectives/benchmark.h"

namespace dear::bench_collectives {

// An SVG picture of bus bandwidth against size, both logarithmic: a line for each library and operation,
// named at the right. Nothing but itself is needed to show it. ConfigError when no result has a bandwidth.
std::string bandwidth_plot(const std::vector<Result>& results, const std::string& title);

}  // namespace dear::bench_collectives
