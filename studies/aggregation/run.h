#pragma once

#include "studies/aggregation/star.h"
#include <cstdint>
#include <optional>
#include <vector>

#include "dear/comm/group/group.h"

// A measurement of sums through an aggregator: sketches and dense vectors of the same gradients, in turns.
namespace dear::studies::aggregation {

struct RunOptions {
  std::int64_t elements = std::int64_t{1} << 22;
  double density = 0.05;  // of the union of all workers
  std::int64_t steps = 20;
  bool exact = false;  // fixed point, and gradients whose sums in fp32 are exact: both must be the same bits
  std::uint64_t seed = 1;
};

// How gradients travelled one way.
struct Way {
  Traffic traffic;              // of one worker in all steps
  std::vector<double> seconds;  // of each step on the worker where it took longest, coding included
};

struct RunResult {
  Way sketch, dense;
  std::int64_t keys = 0;             // of the largest union
  int peeling_rounds = 0;            // the most of any step
  std::int64_t dense_exchanges = 0;  // steps whose sketch did not give the sum
  double largest_error = 0;          // of any sum from a sketch, as a part of the largest sum of its step
};

// Every rank of the group calls it with the same options, the last one as the aggregator, which returns
// nothing. One step more goes ahead that is neither timed nor counted. Every worker compares every sum with
// the dense one: Error that names worker and step where they differ by more than 1e-5 of the largest, or with
// `exact` at all. ConfigError for options out of their range.
std::optional<RunResult> run(const Group& group, const RunOptions& options);

}  // namespace dear::studies::aggregation
