#pragma once

#include <cstdint>

// The constants of linear convergence, and what follows from them. CompressedScaffnew (Condat, Agarsky and
// Richtarik 2022, arXiv 2210.13277) and TAMUNA (Condat et al. 2023, arXiv 2302.09832).
namespace dear::methods::rounds {

// Each client's function is `smoothness`-smooth and `convexity`-strongly convex: L and mu. Both 0 where
// nothing is known.
struct Constants {
  double smoothness = 0;
  double convexity = 0;
  [[nodiscard]] double condition() const { return smoothness / convexity; }
};

// Parameters of a round in which, of `clients`, each coordinate has `owners`; local steps end with
// `probability` after each.
struct Shifts {
  int clients = 2;
  int owners = 2;
  double gamma = 0;        // step size
  double probability = 1;  // p
  double chi = 1;          // step size of control variates, times gamma / p
};

// The largest chi under which the theorem holds: n (s - 1) / (s (n - 1)).
double largest_chi(int clients, int owners);

// tau: E Psi after t local steps is at most tau^t times Psi before, where, with w = (n - 1) / (s - 1),
//   Psi = 1 / gamma sum_i |x_i - x*|^2 + w gamma / (p^2 chi) sum_i |h_i - grad f_i(x*)|^2.
double rate_of(const Shifts& shifts, const Constants& constants);

// The step size with the best rate of gradient descent: 2 / (L + mu).
double best_gamma(const Constants& constants);
// The probability that makes both terms of tau equal, with best_gamma(); at most 1.
double best_probability(int clients, int owners, double chi, const Constants& constants);
// max(2, floor(cohort / dimension), floor(alpha cohort)): few reals in all, where one that is sent down costs
// `alpha` of one that is sent up.
int best_owners(int cohort, std::int64_t dimension, double alpha);

}  // namespace dear::methods::rounds
