#pragma once

#include "dear/tune/gaussian_process.h"

namespace dear::tune {

// By how much a value of this belief is expected to lie below `best` - `margin`, where it does; 0 is the
// least there is (Jones, Schonlau, Welch 1998, doi:10.1023/A:1008306431147). With a larger margin less is
// expected of points that are known well.
double expected_improvement(const Belief& belief, double best, double margin);

}  // namespace dear::tune
