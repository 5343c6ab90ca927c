#include "dear/predict/tune/expected_improvement.h"

#include <algorithm>
#include <cmath>

namespace dear::tune {

double expected_improvement(const Belief& belief, double best, double margin) {
  constexpr double kRootTwoPi = 2.5066282746310002;
  const double gain = best - margin - belief.mean;
  if (!(belief.deviation > 0)) return std::max(0.0, gain);
  const double z = gain / belief.deviation;
  const double below = std::erfc(-z / std::sqrt(2.0)) / 2;
  const double density = std::exp(-z * z / 2) / kRootTwoPi;
  return std::max(0.0, gain * below + belief.deviation * density);
}

}  // namespace dear::tune
