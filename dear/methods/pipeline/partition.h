#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/vocabulary/range.h"
#include "dear/methods/pipeline/stages.h"

// How operators are cut into stages.
namespace dear::methods::pipeline {

// Where a stage is to run, before anybody knows its operators.
struct Place {
  int device = 0;
  std::int64_t memory_bytes = 0;  // the stage's part of the device's
  int held = 1;                   // micro-batches whose activations it holds at once
};

// How long a stage keeps a resource busy for each micro-batch: its device, or the link over the cut in front
// of it, either way; whatever is the longest. Latencies keep nothing busy. What crosses the cut travels as
// `transfer_scale` of its bytes. Nothing lies in front of the first stage: its `device_before` is -1.
double stage_seconds(const StageCosts& costs, const Range& operators, int device, int device_before,
                     double transfer_scale = 1);

// The cut that no other beats: the longest stage_seconds() of all is the least there is, and among those
// that attain it the sum of what stages compute and cuts carry, with latencies, is the least. Every stage has
// an operator. Takes time in proportion to stages x operators^2. `operators` is a part of the DAG; what lies
// in front of it is on `device_before`, if anything does. ConfigError, naming the operator where one alone is
// to blame, where memories are too small; and for less operators than stages.
std::vector<Range> best_partition(const StageCosts& costs, const Range& operators,
                                  const std::vector<Place>& stages, double transfer_scale = 1,
                                  int device_before = -1);

void check_tolerance(double tolerance);  // ConfigError for one that is negative or not finite

// FusionLLM's: communities of devices, in order, get shares of the operators in proportion to their speeds;
// each border moves to where the fewest bytes cross, within `tolerance` of a community's mean share of the
// work; inside a community best_partition() decides. ConfigError as from both.
std::vector<Range> fence_partition(const StageCosts& costs,
                                   const std::vector<std::vector<Place>>& communities, double tolerance,
                                   double transfer_scale = 1);

// The rivals' plans: as many operators for each stage; as much work for each stage, whatever its device.
// ConfigError for less operators than stages. They look at no memory.
std::vector<Range> equal_number(const OperatorDag& dag, std::size_t stages);
std::vector<Range> equal_work(const StageCosts& costs, std::size_t stages);

}  // namespace dear::methods::pipeline
