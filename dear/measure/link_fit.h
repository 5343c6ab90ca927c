#pragma once

#include <string>
#include <vector>

#include "dear/cluster/cluster_file.h"
#include "dear/measure/benchmark.h"

namespace dear::measure {

// The cluster that would show the first library's times, were its ranks on links of their own: alpha and
// beta of the operation's formula in cost/ring.h, fitted to the medians. ConfigError where they cannot be
// found: fewer than two sizes measured, one rank, a barrier.
Cluster fit_cluster(const std::vector<Result>& results, MeasuredOperation operation);

// What was found, with its residuals.
std::string fit_text(const Cluster& cluster);

}  // namespace dear::measure
