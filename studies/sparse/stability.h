#pragma once

#include <vector>

namespace dear::studies::sparse {

// Up to which learning rate times curvature gradient descent on a parabola is stable in mean square, where
// the gradient travels in a step with probability p, as a coordinate's under random-k of ratio p.
struct StabilityLimit {
  double p = 0;
  double law = 0;  // 2p / (2 - p), of error feedback without momentum
  double feedback = 0;
  double no_feedback = 0;
  double momentum_after = 0;   // feedback, and momentum 0.9 of the optimiser
  double momentum_before = 0;  // feedback, and momentum 0.9 on each worker
};

// By codec::stability_limit().
std::vector<StabilityLimit> stability_limits(const std::vector<double>& probabilities);

}  // namespace dear::studies::sparse
