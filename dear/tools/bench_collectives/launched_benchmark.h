#pragma once

#include <functional>

#include "dear/comm/backends/environment.h"
#include "dear/tools/bench_collectives/benchmark.h"

// A benchmark whose ranks a launcher has started, on one host or on many: every rank runs the benchmark, as
// programs of nccl-tests do, and all ranks come to the same outcome.
namespace dear::bench_collectives {

// The backends of init() under their own names, and "auto" for the one that init() chooses.
const std::vector<Library>& launched_backends();

// Why this rival cannot be measured under this launcher; "" when it can.
std::string missing_here(const Library& rival, const LaunchEnvironment& environment);

// Runs the benchmark on this rank. The first selected library is one of launched_backends(): ranks exchange
// their times over its group, so a failure of it ends the benchmark. The clocks of hosts differ, so the time
// of a repetition is that of the rank on which it lasts longest.
BenchmarkOutcome run_launched_benchmark(const BenchmarkSettings& settings,
                                        const LaunchEnvironment& environment,
                                        const std::function<void(std::int64_t bytes)>& progress);

}  // namespace dear::bench_collectives
