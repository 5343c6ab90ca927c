#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/schedule/step.h"

namespace dear::schedule {

// Which steps a set of edges puts before which. A path whose edges add up to `back` = k makes its last step
// wait for its first step of k iterations earlier; a step also follows itself from iteration to iteration, so
// the smallest k over all paths says everything.
class Precedence {
 public:
  // The edges' steps must be below `step_count`.
  Precedence(std::size_t step_count, const std::vector<Edge>& edges);

  // By step: the fewest iterations that any path from `from` to it crosses, kBeyond when none crosses fewer
  // than two.
  static constexpr std::uint8_t kBeyond = 2;
  [[nodiscard]] std::vector<std::uint8_t> crossings_from(StepId from) const;

  // Whether an edge alone leads from one step to the other and crosses at most so many iterations.
  [[nodiscard]] bool has_edge(StepId from, StepId to, std::uint32_t iterations) const;

  // Each step after all those that it waits for in its own iteration; steps on or behind a cycle are left
  // out.
  [[nodiscard]] std::vector<StepId> order_within_iteration() const;
  // The steps of one cycle of edges that cross no iteration, in order; empty when there is none.
  [[nodiscard]] std::vector<StepId> cycle_within_iteration() const;

 private:
  struct Successor {
    StepId to;
    std::uint32_t back;
    friend auto operator<=>(const Successor&, const Successor&) = default;
  };
  std::vector<std::vector<Successor>> successors_;  // ascending
};

}  // namespace dear::schedule
