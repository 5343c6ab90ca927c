#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/collective_times.h"
#include "dear/predict/sim/jobs.h"
#include "dear/predict/sim/memory.h"
#include "dear/predict/sim/variation.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/compressed.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/layers/workload.h"

namespace dear::sim {

// How closely the network is looked at.
enum class Detail : std::uint8_t {
  closed_form,  // formulas; see ClosedFormNetwork
  flows,        // each rank's bytes as one flow around the ring, sharing links max-min fairly
  blocks        // every message of a program's rounds; a broadcast, which is pipelined, as flows
};
std::string name_of(Detail detail);          // "closed-form", "flows", "blocks"
Detail parse_detail(std::string_view text);  // ConfigError that lists them

// A schedule of more steps than EvaluateOptions::most_steps.
class TooManySteps : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

struct EvaluateOptions {
  Detail detail = Detail::closed_form;
  std::int64_t iterations = 16;  // of which the second half counts; at least 4
  double jitter = 0;             // see Variation
  int repetitions = 1;
  std::uint64_t seed = 1;
  int optimizer_states = 1;  // see memory_of()
  // Whether updates on a lane of their own run on what the program computes with, and interrupt it, as on a
  // GPU; else they run beside it, as on cores of their own.
  bool updates_share_compute = true;
  // Passes forward and backward in an iteration, whose gradients add up before they travel: collectives lie
  // under the first forward and the last backward pass. At least 1; more than 1 not for policies that shard
  // parameters, which gather them in every pass.
  int micro_batches = 1;
  // The algorithm whose blocks are sent: one of platform/algorithm/algorithms.h; two of them, inside the
  // innermost dimension and across: "hierarchical:ring,halving-doubling"; or one of line_algorithms() for
  // each dimension of several members, innermost first: "hierarchical:direct,ring,halving-doubling". Or one
  // that goes in chunks (platform/cost/chunk_planner.h): "themis".
  std::string program = "ring";
  // The most steps of all simulated ranks together: a laptop simulates as many as the default in minutes, and
  // holds them.
  double most_steps = 1e7;
  Jobs jobs{};  // like this one, that share the cluster: not in closed form
  std::optional<CompressionModel> compression{};
};

// An Evaluation says how fast a policy is on a machine, and what limits it there.
struct Evaluation {
  Estimate iteration;
  // Seconds that the slowest rank computes, with nothing to interfere: on its compute lane, and updates that
  // share it.
  double compute_seconds = 0;
  // iteration - compute, and without the codec's time where it shares what the program computes with
  double exposed_communication_seconds = 0;
  double codec_seconds = 0;  // of the slowest rank, all encoding and decoding of an iteration
  // The policy's bound for this f, b and r. Encoded gradients: for what travels before the commit and after
  // it, and not below what the codec takes.
  double bound_seconds = 0;
  double f_seconds = 0, b_seconds = 0;  // of the slowest rank, in one pass
  double r_seconds = 0;                 // an all-reduce's worth of the grouping's buckets, one by one
  Memory memory;
  std::vector<conductor::StepSpan> spans;  // of rank 0 in the first repetition
};

// `times` are those of the cluster, and count where the detail is closed_form; the rest plays rings on its
// links. As many ranks as the cluster has, shared among the jobs: `times` are those of one job's. ConfigError
// for what cannot be, as
// make_compressed_schedule() too; TooManySteps, which is one, for a schedule that is too long.
Evaluation evaluate(const Policy& policy, const Workload& workload, const Grouping& grouping,
                    const Cluster& cluster, const cost::CollectiveTimes& times,
                    const EvaluateOptions& options = {});

// The schedule that evaluate() plays: the policy's, with gradients encoded where options have a compression.
CompressedSchedule schedule_of(const Policy& policy, const Workload& workload, const Grouping& grouping,
                               const cost::CollectiveTimes& times, const EvaluateOptions& options);

// Seconds of an iteration with each grouping in turn, in closed form, without jitter, updates on cores of
// their own: as in live training, which measures the workload while its updates run beside the program.
std::vector<double> iteration_seconds(const Policy& policy, const Workload& workload,
                                      const std::vector<Grouping>& groupings, const Cluster& cluster,
                                      const cost::CollectiveTimes& times);

}  // namespace dear::sim
