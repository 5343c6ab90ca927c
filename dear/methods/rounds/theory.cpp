#include "dear/methods/rounds/theory.h"

#include <algorithm>
#include <cmath>

namespace dear::methods::rounds {
namespace {

double squared(double value) { return value * value; }

}  // namespace

double largest_chi(int clients, int owners) {
  const double n = clients, s = owners;
  return n * (s - 1) / (s * (n - 1));
}

double rate_of(const Shifts& shifts, const Constants& constants) {
  const double n = shifts.clients, s = shifts.owners;
  return std::max({squared(1 - shifts.gamma * constants.convexity),
                   squared(shifts.gamma * constants.smoothness - 1),
                   1 - squared(shifts.probability) * shifts.chi * (s - 1) / (n - 1)});
}

double best_gamma(const Constants& constants) { return 2 / (constants.smoothness + constants.convexity); }

double best_probability(int clients, int owners, double chi, const Constants& constants) {
  const double n = clients, s = owners;
  // 1 - ((kappa - 1) / (kappa + 1))^2, without the difference of numbers that are almost equal.
  const double gained = 4 * constants.condition() / squared(constants.condition() + 1);
  return std::min(1.0, std::sqrt(gained * (n - 1) / ((s - 1) * chi)));
}

int best_owners(int cohort, std::int64_t dimension, double alpha) {
  return std::min(cohort, static_cast<int>(std::max({std::int64_t{2}, cohort / dimension,
                                                     static_cast<std::int64_t>(alpha * cohort)})));
}

}  // namespace dear::methods::rounds
