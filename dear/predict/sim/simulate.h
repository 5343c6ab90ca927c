#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cluster/network.h"
#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/encoding.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/workload/layers/workload.h"

namespace dear::sim {

// Seconds of each step, indexed by StepId: layers from the workload, collectives by `times` (or as rings on a
// flat network) with what the schedule's policy adds to each, updates as update_seconds shared among buckets
// by bytes (and among ranks, for a shard), the codec's steps as `encodings` foresee them, by bucket.
std::vector<double> step_seconds(const Schedule& schedule, const Workload& workload, const Grouping& grouping,
                                 const cost::CollectiveTimes& times,
                                 const std::vector<Encoding>& encodings = {});
std::vector<double> step_seconds(const Schedule& schedule, const Workload& workload, const Grouping& grouping,
                                 const Link& link, int ranks);

struct Result {
  double iteration_seconds = 0;  // steady state: mean over the second half of the iterations
  double compute_seconds = 0;    // forward + backward + updates on the compute lane, per iteration
  double exposed_communication_seconds = 0;  // iteration - compute
  double bound_seconds = 0;  // the policy's closed form for this f, b and r; 0 for a policy of your own
  double f_seconds = 0, b_seconds = 0;
  double r_seconds = 0;  // all collectives of an iteration
  std::vector<conductor::StepSpan> spans;
};

struct Options {
  int ranks = 1;
  std::int64_t iterations = 32;  // at least 4
};
Result simulate(const Schedule& schedule, const Workload& workload, const Grouping& grouping,
                const Link& link, const Options& options);

// Returns it as any executor writes it, rank 0 standing for all; `network` says how it was modelled, see
// describe().
Trace to_trace(const Schedule& schedule, const Workload& workload,
               const std::vector<conductor::StepSpan>& spans, const std::string& network, int ranks);
std::string format_bandwidth(double bits_per_second);  // "9.6 Gb/s"
std::string describe(const Network& network);          // "modelled: 1gbit (alpha 50 us, 1 Gb/s)"
// "modelled: NAME (4 x node: alpha 5 us, 96 Gb/s; 16 x spine: ...)"
std::string describe(const Cluster& cluster);

}  // namespace dear::sim
