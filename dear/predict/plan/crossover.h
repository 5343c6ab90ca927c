#pragma once

#include <string>

#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/layers/workload.h"

namespace dear::plan {

// From which bandwidth on gradients that travel dense are as fast as compressed ones.
struct Crossover {
  // Bits a second of the outermost link, all links scaled alike: compression pays below it. 0 where it pays
  // on no network, infinite where it pays on every one.
  double bits_per_second = 0;
  double here = 0;  // what that link has in the cluster; infinite for one without beta
  std::string why;  // it does not pay above; empty where it pays on every network
};

// One job under one policy, dense and compressed, each on buckets of its own.
struct Contest {
  const Policy& policy;
  const Workload& workload;
  const Cluster& cluster;
  const cost::ClusterTimesOptions& times;
  const sim::EvaluateOptions& options;  // without a compression
  const CompressionModel& compression;
  const Grouping& dense;
  const Grouping& compressed;
};

// By bisection over bandwidths up to a million times as high and as low as the cluster's. Errors as
// sim::evaluate().
Crossover find_crossover(const Contest& contest);

}  // namespace dear::plan
