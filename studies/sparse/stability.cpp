#include "studies/sparse/stability.h"

#include "dear/schedule/codec/stability.h"

namespace dear::studies::sparse {
namespace {

using codec::stability_limit;

constexpr double kMomentum = 0.9;

Compression random_k(bool feedback, double momentum) {
  Compression compression{.scheme = Scheme::random_k};
  compression.feedback = feedback;
  compression.momentum = momentum;
  return compression;
}

}  // namespace

std::vector<StabilityLimit> stability_limits(const std::vector<double>& probabilities) {
  std::vector<StabilityLimit> limits;
  for (const double p : probabilities)
    limits.push_back({.p = p,
                      .law = 2 * p / (2 - p),
                      .feedback = stability_limit({.compression = random_k(true, 0)}, p),
                      .no_feedback = stability_limit({.compression = random_k(false, 0)}, p),
                      .momentum_after =
                          stability_limit({.compression = random_k(true, 0), .momentum_after = kMomentum}, p),
                      .momentum_before = stability_limit({.compression = random_k(true, kMomentum)}, p)});
  return limits;
}

}  // namespace dear::studies::sparse
