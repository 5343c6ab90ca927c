#pragma once

#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"

namespace dear::plan {

// Where the seconds of an iteration go; they add up to it.
struct Breakdown {
  double compute = 0;
  // What the policy leaves uncovered even with infinitely fine buckets and no start-up: its bound on a
  // network of bandwidth alone, over computation.
  double overlap = 0;
  // What buckets of this size change of that: nothing hides the first and the last. Below 0 where the bound
  // counts a part of computation that this schedule has somewhere else.
  double fusion = 0;
  double start_up = 0;      // what launches and the alpha of messages add, and negotiation
  double interference = 0;  // what communication and computation take from each other where both go on
};

// By simulating again, without interference and then without alpha. `evaluation` is that of the same case.
Breakdown break_down(const Policy& policy, const Workload& workload, const Grouping& grouping,
                     const Cluster& cluster, const cost::ClusterTimesOptions& times,
                     const sim::EvaluateOptions& options, const sim::Evaluation& evaluation);

// Returns the same cluster with every alpha, launches too, and every beta multiplied.
Cluster scaled(Cluster cluster, double alpha, double beta);

// Bits a second of the outermost link that has several ranks; infinite where it has no beta.
double outermost_bits_per_second(const Cluster& cluster);

}  // namespace dear::plan
