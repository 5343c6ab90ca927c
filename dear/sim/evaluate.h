#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/cluster/cluster.h"
#include "dear/cost/collective_times.h"
#include "dear/exec/drive.h"
#include "dear/fusion/grouping.h"
#include "dear/schedule/policy/policy.h"
#include "dear/sim/memory.h"
#include "dear/sim/variation.h"
#include "dear/workload/workload.h"

namespace dear::sim {

// How closely the network is looked at.
enum class Detail : std::uint8_t {
  closed_form,  // formulas; see ClosedFormNetwork
  flows,        // each rank's bytes as one flow around the ring, sharing links max-min fairly
  blocks        // every message of the ring's rounds; a broadcast, which is pipelined, as flows
};
std::string name_of(Detail detail);          // "closed-form", "flows", "blocks"
Detail parse_detail(std::string_view text);  // ConfigError that lists them

struct EvaluateOptions {
  Detail detail = Detail::closed_form;
  std::int64_t iterations = 16;  // of which the second half counts; at least 4
  double jitter = 0;             // see Variation
  int repetitions = 1;
  std::uint64_t seed = 1;
  int optimizer_states = 1;  // see memory_of()
};

// What a policy gives on a machine, and what limits it there.
struct Evaluation {
  Estimate iteration;
  double compute_seconds = 0;                // of the slowest rank, on its compute lane
  double exposed_communication_seconds = 0;  // iteration - compute
  double bound_seconds = 0;                  // of the policy, for this f, b and r
  double f_seconds = 0, b_seconds = 0;       // of the slowest rank
  double r_seconds = 0;                      // an all-reduce's worth of the grouping's buckets, one by one
  Memory memory;
  std::vector<StepSpan> spans;  // of rank 0 in the first repetition
};

// `times` are those of the cluster, and count where the detail is closed_form; the rest plays rings on its
// links. As many ranks as the cluster has. ConfigError for what cannot be.
Evaluation evaluate(const Policy& policy, const Workload& workload, const Grouping& grouping,
                    const Cluster& cluster, const cost::CollectiveTimes& times,
                    const EvaluateOptions& options = {});

}  // namespace dear::sim
