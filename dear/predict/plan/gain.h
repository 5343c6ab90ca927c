#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/layers/workload.h"

namespace dear::plan {

// By how many seconds an iteration is shorter under one policy than under another, and what of it comes from
// where; below 0 where it is longer. The causes add up to it.
struct Gain {
  std::string over;  // the other policy
  double seconds = 0;
  double schedule = 0;     // when collectives run, and what waits for them
  double sharding = 0;     // of the update: each rank updates 1/P
  double collectives = 0;  // a reduce-scatter and an all-gather do not take what an all-reduce takes
  double fusion = 0;       // buckets with which the other would be faster, too

  enum class Cause : std::uint8_t { schedule, sharding, collectives, fusion };
  struct Part {
    double seconds;
    Cause cause;
  };
  [[nodiscard]] std::vector<Part> parts() const;  // the largest first, by amount
};

std::string_view name_of(Gain::Cause cause);  // "its schedule", "sharding the update", ...

// A policy on its buckets.
struct Contender {
  const Policy& policy;
  const Grouping& grouping;
};

// By simulating again: one with a whole update on every rank, then with halves of an all-reduce that take
// half of it each; the other with the buckets of the one. The schedule has what is left.
Gain gain_over(const Contender& one, const Contender& other, const Workload& workload, const Cluster& cluster,
               const cost::ClusterTimesOptions& times, const sim::EvaluateOptions& options);

}  // namespace dear::plan
