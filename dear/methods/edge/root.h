#pragma once

#include <functional>

// Roots of monotone functions, between values that enclose them.
namespace dear::methods::edge {

// Where a function goes from below zero, at `low`, to zero or above, at `high`.
struct Bracket {
  double low = 0;
  double high = 0;
  int evaluations = 0;
};

// Narrows a bracket until it is `tolerance` of its upper end wide, by the method of Illinois (Dowell and
// Jarratt 1971, doi:10.1007/BF01934364) with a bisection wherever a few steps do not halve it. `function`
// does not decrease; it may return infinities. Ends after 200 evaluations at most, since doubles lie no
// denser.
Bracket narrow(const std::function<double(double)>& function, Bracket bracket, double tolerance = 1e-14);

// Doubles the distance of `high` from `low` until the function is not below zero there. Error after 1000
// doublings: no number is large enough.
Bracket enclose(const std::function<double(double)>& function, Bracket start);

}  // namespace dear::methods::edge
