#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/cluster/cluster.h"
#include "dear/cost/cluster_times.h"
#include "dear/fusion/grouping.h"
#include "dear/plan/fusion_choice.h"
#include "dear/schedule/policy/policy.h"
#include "dear/sim/evaluate.h"
#include "dear/trace/trace.h"
#include "dear/workload/workload.h"

namespace dear::study {

// One job on one machine.
struct Scenario {
  Workload workload;
  Cluster cluster;                // of as many ranks as take part, those of all jobs
  std::int64_t memory_bytes = 0;  // of a rank's device; 0: not known
  std::string origin;             // of the times: "built for rtx2080ti, 64 samples", "read from FILE"
};

struct CaseOptions {
  std::vector<const Policy*> policies;
  plan::FusionChoice fusion;
  sim::EvaluateOptions evaluate;
  cost::ClusterTimesOptions times;
};

// One policy in one scenario.
struct Case {
  const Scenario* scenario = nullptr;
  const Policy* policy = nullptr;
  std::string fusion;
  Grouping grouping;
  cost::CollectiveTimes times;
  sim::Evaluation evaluation;
};

// Every policy in every scenario, policies innermost. The scenarios outlive the cases.
std::vector<Case> simulate(const std::vector<Scenario>& scenarios, const CaseOptions& options);

// A list of {model, cluster, ranks, policy, fusion, iteration_seconds, ...}: see docs/formats.md.
std::string to_json(const std::vector<Case>& cases);
// SVG: a panel for each scenario, a bar for each policy.
std::string plot(const std::vector<Case>& cases, const std::string& title);
Trace trace_of(const Case& one);

}  // namespace dear::study
