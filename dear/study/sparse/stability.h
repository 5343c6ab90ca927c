#pragma once

#include <vector>

namespace dear::study::sparse {

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

// By bisection, from the second moments of the state (parameter, residual, momentum), each step of which
// codec::Feedback takes: a step is one of two linear maps, and the moments are stable where their operator
// has no eigenvalue above 1. The law: between two steps that travel the parameter stands still, so that G
// steps later it is 1 - s G times what it was, with G geometric.
std::vector<StabilityLimit> stability_limits(const std::vector<double>& probabilities);

}  // namespace dear::study::sparse
