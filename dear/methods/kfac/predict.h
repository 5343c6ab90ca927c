#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dear/methods/kfac/iteration.h"
#include "dear/methods/kfac/plan.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/fusion/grouping.h"

namespace dear::methods::kfac {

// Seconds of an iteration by what the slowest rank does in them, as Shi et al. 2021 break it down:
// communication counts only where nothing is computed meanwhile.
struct Breakdown {
  double passes = 0;         // forward and backward
  double gradients = 0;      // exposed
  double factors = 0;        // computed
  double factors_sent = 0;   // exposed
  double inverses = 0;       // computed
  double inverses_sent = 0;  // exposed, and waiting for who inverts
  double update = 0;         // preconditioning, and the optimiser
  [[nodiscard]] double total() const {
    return passes + gradients + factors + factors_sent + inverses + inverses_sent + update;
  }
};

struct Prediction {
  double iteration_seconds = 0;  // the mean in the long run, over whole intervals
  Breakdown parts;               // of rank 0, mean as well
  Iteration iteration;
  std::vector<conductor::StepSpan> spans;  // of rank 0
};

// Tells the seconds of each step as `rank` does it; collectives take what `costs` say, and nothing on one
// rank alone. The step of an inverse holds the averaging of its factor on every rank that keeps it, and the
// inversion where it is made; that of a layer's preconditioning holds the unpacking of inverses from others,
// in the iterations that send them.
std::function<double(Instance)> step_seconds(const Job& job, const Grouping& grouping, const Plan& plan,
                                             const Costs& costs, const Iteration& iteration, int rank);

// The parts of the time between two moments, by the spans of one rank, per iteration where `iterations` of
// them lie between. Where nothing is computed, the time belongs to what travels.
Breakdown break_down(const Iteration& iteration, const std::vector<conductor::StepSpan>& spans, double from,
                     double to, std::int64_t iterations);

// The intervals that mean_iteration_seconds() plays instead of these: at most 4 renewals of factors, every 4
// iterations. ConfigError as check().
Intervals shortened(const Intervals& intervals);
// Prediction::iteration_seconds, but for rounding, where gradients travel. Its cost does not grow with the
// intervals ([Note: short intervals]).
double mean_iteration_seconds(const Job& job, const Grouping& grouping, const Plan& plan, const Costs& costs,
                              const Intervals& intervals = {});

// Simulates two intervals of all ranks in virtual time, of those that invert nothing of their own one for
// all. Collectives begin when the last rank has come, and take the time of their elements.
Prediction predict(const Job& job, const Grouping& grouping, const Plan& plan, const Costs& costs,
                   const Intervals& intervals = {});

}  // namespace dear::methods::kfac
