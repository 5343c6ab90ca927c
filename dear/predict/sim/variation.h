#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dear/platform/cluster/cluster.h"
#include "dear/predict/sim/jobs.h"
#include "dear/predict/sim/network_model.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/policies/schedule.h"

namespace dear::sim {

// SharedCompute names the work that runs on the device of the program, as on one GPU, and takes its time
// there. Other work runs beside.
struct SharedCompute {
  bool codec = false;    // see CodecTimes::shares_compute
  bool updates = false;  // that stand on a lane of their own
};

// In what ranks differ from each other, and iterations from each other.
struct Variation {
  // By how much each rank is slower than the workload says: one entry for each rank that is simulated.
  std::vector<double> slowdowns = {1};
  // Standard deviation of every step on the compute and update lanes, as a part of its time: each rank, step
  // and iteration draws a factor from a log-normal distribution with the mean 1. 0 draws nothing.
  double jitter = 0;
  std::uint64_t seed = 1;
  int repetitions = 1;          // each with draws of its own
  Jobs jobs{};                  // that the simulated ranks are of
  Interference interference{};  // of one job alone
  SharedCompute shared{};
};

// [Note: folding] Ranks that compute alike enter all collectives at the same times. Where a collective ends
// on all of them at once, one of them stands for all; so of P ranks there remain as many as there are
// slowdowns. That holds in closed form and without jitter, and only there: in a network that is played block
// by block ranks end at times of their own, and with jitter none is like another.
std::vector<double> folded_slowdowns(const std::vector<Straggler>& stragglers, int ranks);
std::vector<double> all_slowdowns(const std::vector<Straggler>& stragglers, int ranks);

// The mean of repetitions, and half the width of its confidence interval of 95 % (Student's t); 0 for one
// repetition, which tells nothing of spread.
struct Estimate {
  double seconds = 0;
  double half_width_seconds = 0;
};
Estimate estimate(const std::vector<double>& samples);

struct Samples {
  // An iteration in steady state, from commit to commit of the rank that is last, over the second half of
  // the iterations, the mean of all jobs; one value for each repetition. Jobs begin one after another, evenly
  // over the computation of one iteration: in step they would meet on the network more often than jobs do.
  std::vector<double> iteration_seconds;
  std::vector<conductor::StepSpan> spans;  // of rank 0 in the first repetition
};
// `step_seconds` by StepId; every repetition has a network of its own.
using MakeNetwork = std::function<std::unique_ptr<NetworkModel>(int ranks)>;
Samples iteration_samples(const Schedule& schedule, const std::vector<double>& step_seconds,
                          const Variation& variation, const MakeNetwork& make_network,
                          std::int64_t iterations);

// The factor that one step draws.
double jitter_factor(const Variation& variation, int repetition, int rank, Instance which);

}  // namespace dear::sim
