#pragma once

#include <array>

#include "dear/schedule/codec/compression.h"

// Up to which learning rate training is stable under error feedback.
//
// [Note: stability with feedback] A parabola of one parameter x with curvature 1, whose gradient travels with
// probability p, as a coordinate's does under random-k of ratio p: a step is one of two linear maps of (x,
// residual, momentum). Second moments of this state are multiplied by p T (x) T + (1 - p) H (x) H, with T the
// map where the gradient travels and H where it is held back, and are stable if no eigenvalue of this matrix
// exceeds 1. Between two steps that travel x stands still, so that G steps later it is (1 - s G) x, with G
// geometric: without momentum the mean square is stable for s < 2p/(2-p).
namespace dear::codec {

// Descent of a parabola as Feedback does it. Both maps are made by Feedback itself.
struct ParabolaDescent {
  Compression compression;    // its error feedback and momentum; what travels is drawn, whatever the scheme
  double momentum_after = 0;  // of the optimiser, after the communication
};

// The matrix by which a step multiplies the second moments of (x, residual, momentum): nine, row after row of
// their 3 x 3 matrix.
using MomentMatrix = std::array<std::array<double, 9>, 9>;
MomentMatrix moment_matrix(const ParabolaDescent& descent, double learning_rate, double p);

// The largest learning rate, times curvature, at which the second moments are stable; found by bisection
// between 0 and 5, to 1e-11.
double stability_limit(const ParabolaDescent& descent, double p);

}  // namespace dear::codec
