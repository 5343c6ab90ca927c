#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dear/base/vocabulary/ids.h"

namespace dear {

// Step `to` of iteration i waits for step `from` of iteration i - back.
struct Edge {
  StepId from;
  StepId to;
  std::uint32_t back = 0;
  friend bool operator==(const Edge&, const Edge&) = default;
};

// The run of a step in one iteration.
struct Instance {
  StepId step;
  std::int64_t iteration;
  friend auto operator<=>(const Instance&, const Instance&) = default;
};

// The iterations in which a step runs: those whose number is `first` more than a multiple of `period`.
// [Note: steps that rest] In all others the step rests: it takes no time, and no executor is told of it. It
// keeps its place on its lane, so that the others of the lane stay in order, but it does not wait for the
// edges that lead to it. What waits for it waits, by the order of the lane, for its last run. So of the paths
// that prove an order, those through a step that rests hold only where it runs.
struct Rhythm {
  std::uint32_t period = 1;
  std::uint32_t first = 0;  // below `period`
  [[nodiscard]] bool rests_in(std::int64_t iteration) const { return iteration % period != first; }
  friend bool operator==(const Rhythm&, const Rhythm&) = default;
};

// Work that repeats from iteration to iteration, as far as its order goes: steps on lanes, and edges between
// them. What a step does, how long it takes and who executes it are its owner's business. A value; safe to
// read from many threads.
class Graph {
 public:
  LaneId add_lane();
  // At the end of the lane. ScheduleError for a lane that there is not, and for a rhythm without iterations.
  StepId add_step(LaneId lane, Rhythm rhythm = {});
  void add_edge(const Edge& edge) { edges_.push_back(edge); }

  [[nodiscard]] std::size_t step_count() const { return steps_.size(); }
  [[nodiscard]] std::size_t lane_count() const { return lanes_.size(); }
  [[nodiscard]] LaneId lane_of(StepId step) const { return steps_.at(step).lane; }
  [[nodiscard]] const Rhythm& rhythm_of(StepId step) const { return steps_.at(step).rhythm; }
  // A lane runs its steps in this order, each once an iteration, unless it rests.
  [[nodiscard]] const std::vector<StepId>& steps_of(LaneId lane) const { return lanes_.at(lane); }
  // The edges that were added. The order of a lane is not among them.
  [[nodiscard]] const std::vector<Edge>& edges() const { return edges_; }

 private:
  struct PlacedStep {
    LaneId lane;
    Rhythm rhythm;
  };
  std::vector<PlacedStep> steps_;
  std::vector<std::vector<StepId>> lanes_;
  std::vector<Edge> edges_;
};

// By lane: whether its order is kept by somebody else than the frontier, such as the program that runs it.
// Empty where no lane is free.
using FreeLaneSet = std::vector<bool>;

// All edges that a run must respect: those that were added, then the order of each lane. In a lane each step
// follows the one before it, and the first step of an iteration follows the last one of the iteration before.
// On a free lane a step follows only itself, from one iteration to the next.
std::vector<Edge> edges_with_lanes(const Graph& graph, const FreeLaneSet& free = {});

// Why the graph cannot run, as the end of a sentence: an edge to or from a step that does not exist, a step
// that waits for itself, a cycle within an iteration (edges of back 0 and lane order together). Empty for a
// graph that can. `name` describes a step.
std::string flaw_of(const Graph& graph, const std::function<std::string(StepId)>& name);

}  // namespace dear
