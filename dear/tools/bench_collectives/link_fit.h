#pragma once

#include <string>
#include <vector>

#include "dear/platform/cluster/cluster_file.h"
#include "dear/tools/bench_collectives/benchmark.h"

namespace dear::bench_collectives {

// The cluster that would show the first library's times, were its ranks on links of their own: alpha and
// beta of the operation's formula in platform/cost/ring.h, fitted to the medians. ConfigError where they
// cannot be found: fewer than two sizes measured, one rank, a barrier.
Cluster fit_cluster(const std::vector<Result>& results, MeasuredOperation operation);

// Describes the fitted links and their residuals.
std::string fit_text(const Cluster& cluster);

}  // namespace dear::bench_collectives
