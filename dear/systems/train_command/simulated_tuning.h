#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/tune/draws.h"
#include "dear/schedule/policies/policy.h"
#include "dear/systems/train_command/tuning_report.h"
#include "dear/workload/layers/workload.h"

namespace dear::train_command {

struct SimulatedTuningOptions {
  const Policy* policy = nullptr;
  std::string method = "bayesian";
  int trials = 10;
  int window = 10;      // iterations of a trial; it is their median
  double noise = 0.05;  // of one iteration, log-normal
  std::uint64_t seed = 1;
  bool planned = false;  // planned buckets (schedule/fusion/planned.h) are a candidate, too
  bool prior = false;    // from a simulation that was told wrong numbers, see misjudge()
  double prior_error = 0.25;
  cost::ClusterTimesOptions times;
};

// Tunes the bucket size of a simulated job. The report holds the true times, which a simulation knows.
// ConfigError for what a tuner or the simulator refuses.
TuningReport tune_simulated(const Workload& workload, const Cluster& cluster,
                            const SimulatedTuningOptions& options);

// Says what a job and its cluster look like to somebody who measured them badly: each start-up time and each
// time a byte is off by a factor between 1 / (1 + error) and 1 + error, all layers together by another, and
// each layer's forward and backward by others.
void misjudge(Workload& workload, Cluster& cluster, double error, tune::Draws& draws);

// The simulated seconds of an iteration for each candidate, in closed form.
std::vector<double> simulated_seconds(const SizeCandidates& sizes, const Policy& policy,
                                      const Workload& workload, const Cluster& cluster,
                                      const cost::ClusterTimesOptions& times = {});

// The median of `window` simulated iterations with random noise around the true time.
double noisy_seconds(double seconds, double noise, int window, tune::Draws& draws);

}  // namespace dear::train_command
