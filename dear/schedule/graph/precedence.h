#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/schedule/graph/graph.h"

namespace dear::graph {

// The order that a set of edges puts steps in. If the `back` of the edges of a path add up to k, the last
// step of the path waits for the first step of k iterations earlier. A step also follows itself from
// iteration to iteration, so the smallest k over all paths between two steps is all there is to know.
class Precedence {
 public:
  // The edges' steps must be below `step_count`.
  Precedence(std::size_t step_count, const std::vector<Edge>& edges);

  // For each step, the fewest iterations that a path from `from` to this step crosses; kBeyond if every path
  // crosses two or more, or if there is none.
  static constexpr std::uint8_t kBeyond = 2;
  [[nodiscard]] std::vector<std::uint8_t> crossings_from(StepId from) const;

  // Whether a single edge leads from `from` to `to` and crosses at most so many iterations.
  [[nodiscard]] bool has_edge(StepId from, StepId to, std::uint32_t iterations) const;

  // All steps, each after those that it waits for in its own iteration. Steps on or behind a cycle are left
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

}  // namespace dear::graph
