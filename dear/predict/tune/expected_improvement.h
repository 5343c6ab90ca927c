#pragma once

#include "dear/predict/tune/gaussian_process.h"

namespace dear::tune {

// Returns the expectation of max(0, best - margin - value) for a value that is distributed as `belief` says
// (Jones, Schonlau, Welch 1998, doi:10.1023/A:1008306431147). A larger margin lowers it most for points that
// are known well.
double expected_improvement(const Belief& belief, double best, double margin);

}  // namespace dear::tune
