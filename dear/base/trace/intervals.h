#pragma once

#include <vector>

namespace dear::trace {

// Seconds from `begin` up to, but without, `end`.
struct Interval {
  double begin = 0;
  double end = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// A set of instants, kept as ascending intervals that are not empty and neither overlap nor touch.
class Intervals {
 public:
  Intervals() = default;
  explicit Intervals(std::vector<Interval> parts);  // their union; empty and inverted parts add nothing

  [[nodiscard]] const std::vector<Interval>& parts() const { return parts_; }
  [[nodiscard]] Intervals united_with(const Intervals& other) const;
  [[nodiscard]] Intervals without(const Intervals& other) const;
  // Total length of the parts inside of `window`. Takes logarithmic time in the number of parts before
  // `window`.
  [[nodiscard]] double length_within(const Interval& window) const;

 private:
  std::vector<Interval> parts_;
};

}  // namespace dear::trace
