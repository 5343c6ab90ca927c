#pragma once

#include <vector>

#include "dear/schedule/policies/policy.h"
#include "dear/tools/cases/cases.h"
#include "dear/workload/layers/testing/workloads.h"

namespace dear::cases::testing {

// Seconds on two ranks: forward 2, backward 4, an all-reduce of either bucket 2, or 0 on the second cluster.
// serial 10, wfbp 8.
inline std::vector<Scenario> two_scenarios() {
  const Workload workload = dear::testing::two_layers();
  const Cluster cluster = flat_cluster({.name = "pair", .link = {.beta_seconds_per_byte = 0.25}}, 2);
  return {
      {.workload = workload, .cluster = cluster, .origin = "made up"},
      {.workload = workload, .cluster = flat_cluster({.name = "free", .link = {}}, 2), .origin = "made up"}};
}

inline CaseOptions serial_and_wfbp() {
  return {.policies = {&find_policy("serial"), &find_policy("wfbp")},
          .fusion = FusionChoice::of_simulation("layer"),
          .evaluate = {},
          .times = {.algorithm = "ring"}};
}

}  // namespace dear::cases::testing
