#include "dear/methods/edge/root.h"

#include <cmath>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::edge {

Bracket narrow(const std::function<double(double)>& function, Bracket bracket, double tolerance) {
  constexpr int kMostEvaluations = 200;
  double at_low = function(bracket.low), at_high = function(bracket.high);
  bracket.evaluations += 2;
  constexpr int kPatience = 3;
  int slow = 0;  // steps since the bracket was halved
  int side = 0;  // of the last step
  double halved = bracket.high - bracket.low;
  for (int evaluation = 0; evaluation < kMostEvaluations; ++evaluation) {
    const double width = bracket.high - bracket.low;
    if (width <= tolerance * std::abs(bracket.high)) break;
    double next = bracket.low - at_low * (width / (at_high - at_low));
    if (slow > kPatience || !std::isfinite(next) || next <= bracket.low || next >= bracket.high)
      next = bracket.low + width / 2;
    if (next <= bracket.low || next >= bracket.high) break;  // neighbours
    const double value = function(next);
    ++bracket.evaluations;
    if (value == 0) {
      bracket.low = bracket.high = next;
    } else if (value < 0) {
      bracket.low = next;
      at_low = value;
      if (side < 0) at_high /= 2;
      side = -1;
    } else {
      bracket.high = next;
      at_high = value;
      if (side > 0) at_low /= 2;
      side = 1;
    }
    ++slow;
    if (bracket.high - bracket.low <= halved / 2) {
      halved = bracket.high - bracket.low;
      slow = 0;
    }
  }
  return bracket;
}

Bracket enclose(const std::function<double(double)>& function, Bracket start) {
  constexpr int kMostDoublings = 1000;
  double width = start.high - start.low;
  for (int doubling = 0; doubling < kMostDoublings; ++doubling) {
    ++start.evaluations;
    if (function(start.high) >= 0) return start;
    width *= 2;
    const double high = start.low + width;
    if (!std::isfinite(high)) break;
    start.high = high;
  }
  throw Error("no finite number satisfies a constraint of the plan: check the sizes of what was given");
}

}  // namespace dear::methods::edge
