#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/plan/breakdown.h"
#include "dear/predict/plan/crossover.h"
#include "dear/predict/plan/gain.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/layers/workload.h"

namespace dear::plan {

struct Options {
  std::vector<const Policy*> policies{};  // to choose from; all when empty
  sim::EvaluateOptions evaluate{};
  cost::ClusterTimesOptions times{};
  std::int64_t memory_bytes = 0;                 // that a rank has; 0: not known
  bool checkpointed = false;                     // whether the workload keeps few activations already
  std::vector<CompressionModel> compressions{};  // to look at beside dense gradients
  // Is told, before each search, how many of all are done and what comes next: the name of a policy, or of a
  // compression.
  std::function<void(std::size_t done, std::size_t all, std::string_view next)> progress{};
};

// Differences of less than that part are none: models are not that exact.
inline constexpr double kSame = 0.005;

// The best that one policy does.
struct Row {
  const Policy* policy = nullptr;
  std::string fusion;  // "usual", "25MiB", "planned"
  Grouping grouping;
  std::string algorithm;  // of the collectives of its largest bucket
  sim::Evaluation evaluation;
  Breakdown breakdown;
  std::string why;   // what keeps it from computing all the time
  bool fits = true;  // into the memory of a rank, where that is known

  [[nodiscard]] double seconds() const { return evaluation.iteration.seconds; }
  [[nodiscard]] std::int64_t memory() const { return evaluation.memory.total(); }
  [[nodiscard]] bool runs() const { return policy->trains; }  // here, under `dear train`; else simulated only
};

// A policy that cannot be had on this cluster, or whose schedules are too long to be searched.
struct LeftOut {
  const Policy* policy = nullptr;
  std::string reason;
};

// A CompressedRow says what a compression gives under the policy that is the fastest with it, of those that
// fit into memory and run here, where there are any.
struct CompressedRow {
  CompressionModel model;
  Row row;
  double dense_seconds = 0;  // an iteration of the same policy without it
  Crossover crossover;
};

// Says what a change of the machine or of the job would make of the row to use, its grouping kept.
struct Sensitivity {
  std::string change;
  double iteration_seconds = 0;
  double speed_up = 0;  // of samples per second
  bool fits = true;     // into the memory of a rank, where that is known
  std::int64_t memory_bytes = 0;
};

struct Answer {
  std::vector<Row> rows;  // the fastest first; at least one
  std::vector<LeftOut> left_out;
  // The row to use: of those that fit into memory and that `dear train` runs the fastest; of those within
  // kSame of it the one that needs least memory, and of such the simplest. If none runs, the same of those
  // that fit and can only be simulated; if none fits, the one that needs least: rows[best].runs() and .fits
  // say so.
  std::size_t best = 0;
  // max(f + b, r) for that row's r: what gradients one iteration old would reach.
  double floor_seconds = 0;
  std::optional<Gain> gain;                // of the row to use over wfbp, where both are there and fit
  std::vector<Sensitivity> sensitivities;  // none where the row to use does not fit
  std::vector<CompressedRow> compressed;   // by compression asked for
  std::vector<std::string> verdict;        // sentences: what to use, and whether DeAR is the answer
};

// Searches policies and, for each, groupings: its usual one, sizes from 1 MiB to 256 MiB, a bucket for each
// layer, all in one, and planned borders (schedule/fusion/planned.h). Collectives go by `times`, each bucket
// by the quickest algorithm unless one is asked for. As many ranks as the cluster has. A grouping that cannot
// be is passed over, and a policy that no grouping suits is left out, with the reason. ConfigError for what
// cannot be, and where no policy is left.
//
// Compressions change what is learnt, so that the row to use is one without; each is searched for alike,
// under those of the policies that can compress. ConfigError where none can.
Answer plan(const Workload& workload, const Cluster& cluster, const Options& options = {});

}  // namespace dear::plan
