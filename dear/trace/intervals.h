#pragma once

#include <vector>

namespace dear::trace {

struct Interval {
  double begin = 0;
  double end = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// A set of instants: ascending intervals that neither overlap nor touch, none of them empty.
class Intervals {
 public:
  Intervals() = default;
  explicit Intervals(std::vector<Interval> parts);  // their union; empty and inverted parts add nothing

  [[nodiscard]] const std::vector<Interval>& parts() const { return parts_; }
  [[nodiscard]] Intervals united_with(const Intervals& other) const;
  [[nodiscard]] Intervals without(const Intervals& other) const;
  // Total length inside of `window`. Logarithmic in the number of parts before it.
  [[nodiscard]] double length_within(const Interval& window) const;

 private:
  std::vector<Interval> parts_;
};

}  // namespace dear::trace
