#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/cluster/cluster.h"
#include "dear/cost/cluster_times.h"
#include "dear/plan/breakdown.h"
#include "dear/plan/crossover.h"
#include "dear/schedule/policy/policy.h"
#include "dear/sim/evaluate.h"
#include "dear/workload/workload.h"

namespace dear::plan {

struct Options {
  std::vector<const Policy*> policies{};  // to choose from; all when empty
  sim::EvaluateOptions evaluate{};
  cost::ClusterTimesOptions times{};
  std::int64_t memory_bytes = 0;                 // that a rank has; 0: not known
  std::vector<CompressionModel> compressions{};  // to look at beside dense gradients
};

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
};

// What a compression gives under the policy that is the fastest with it.
struct CompressedRow {
  CompressionModel model;
  Row row;
  double dense_seconds = 0;  // an iteration of the same policy without it
  Crossover crossover;
};

// What a change of the machine or of the job would make of the row to use, its grouping kept.
struct Sensitivity {
  std::string change;
  double iteration_seconds = 0;
  double speed_up = 0;  // of samples per second
};

struct Answer {
  std::vector<Row> rows;  // the fastest first
  // The row to use: of those that fit into memory the fastest, or one within a hundredth of it that
  // `dear train` runs. If none fits, the one that needs least: rows[best].fits says so.
  std::size_t best = 0;
  // max(f + b, r) for that row's r: what gradients one iteration old would reach.
  double floor_seconds = 0;
  std::vector<Sensitivity> sensitivities;
  std::vector<CompressedRow> compressed;  // by compression asked for
  std::vector<std::string> verdict;       // sentences: what to use, and whether DeAR is the answer
};

// Searches policies and, for each, groupings: its usual one, sizes from 1 MiB to 256 MiB, a bucket for each
// layer, all in one, and planned borders (fusion/planned.h). Collectives go by `times`, each bucket by the
// quickest algorithm unless one is asked for. As many ranks as the cluster has. A grouping
// that cannot be is passed over. ConfigError for what cannot be, and for a policy that no grouping suits.
//
// Compressions change what is learnt, so that the row to use is one without; each is searched for alike,
// under those of the policies that can compress. ConfigError where none can.
Answer plan(const Workload& workload, const Cluster& cluster, const Options& options = {});

}  // namespace dear::plan
