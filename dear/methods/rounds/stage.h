#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dear/methods/rounds/problem.h"
#include "dear/methods/rounds/settings.h"

namespace dear::methods::rounds {

// A Stage of CoDA on one rank (Guo et al. 2020, arXiv 2005.02426): the proximal point, the step size, and the
// running sums of the iterates of each of its clients.
class Stage {
 public:
  // The first stage begins at `point`, of which `primal` coordinates come first, for so many clients.
  Stage(const Settings& settings, std::span<const double> point, std::int64_t primal, std::int64_t clients);

  [[nodiscard]] std::int64_t steps_left() const { return steps_left_; }
  [[nodiscard]] bool last() const { return number_ + 1 >= settings_.stages.count; }
  [[nodiscard]] double gamma() const { return gamma_; }
  // A local step of the client: down in the primal coordinates, with the proximal term taken at the new
  // point, and, since operators of saddles are negative there, up in the others. Adds the new point to its
  // sums.
  void step(std::int64_t client, std::span<const double> gradient, std::span<double> point);
  // All clients have made so many steps.
  void made(std::int64_t steps) { steps_left_ -= steps; }

  // The sums of the primal coordinates over the client's iterates, and, behind them, how many these are.
  [[nodiscard]] std::span<const double> sums_of(std::int64_t client) const;
  // Begins the next stage, around the mean of iterates that means of sums over clients tell. Returns false
  // where that was the last.
  bool end(std::span<const double> mean_of_sums);
  [[nodiscard]] std::span<const double> proximal_point() const { return around_; }

 private:
  Settings settings_;
  int number_ = 0;
  std::int64_t steps_left_;
  double gamma_;
  std::vector<double> around_;
  std::vector<std::vector<double>> sums_;
};

}  // namespace dear::methods::rounds
