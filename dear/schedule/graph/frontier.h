#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "dear/schedule/graph/graph.h"

namespace dear {

// The bookkeeping of a run: it is told which steps are done, and says which steps may start. It has no clock,
// no thread and no I/O.
//
// [Note: token game] A graph of steps is a marked graph (Commoner, Holt, Even, Pnueli 1971,
// doi:10.1016/S0022-0000(71)80013-2): every edge holds `back` tokens at first. A step may start when each of
// its incoming edges holds a token. It takes one token from each of them when it starts, and puts one onto
// each outgoing edge when it is done. So the state is as small as the graph for any number of iterations, and
// a completion takes time in proportion to the degree of its step. A step that rests waits for the tokens
// of its lane alone; it takes those of other edges before they are there, and puts its own at once.
class Frontier {
 public:
  struct Options {
    FreeLaneSet free{};
    std::int64_t iterations = std::numeric_limits<std::int64_t>::max();
  };
  // Reads the graph only here.
  Frontier(const Graph& graph, const Options& options);
  explicit Frontier(const Graph& graph) : Frontier(graph, Options{}) {}

  // The instances that may start before any step is done. Call it once.
  [[nodiscard]] std::vector<Instance> start();
  // `step` of its oldest running iteration is done. Returns what may start now. ScheduleError when it was not
  // running.
  std::vector<Instance> complete(StepId step);
  // Appends to `released`; no allocation when its capacity suffices.
  void complete(StepId step, std::vector<Instance>& released);

  // In how many iterations the step was released, and completed, so far; those in which it rested count.
  [[nodiscard]] std::int64_t started(StepId step) const { return started_.at(step); }
  [[nodiscard]] std::int64_t done(StepId step) const { return done_.at(step); }
  [[nodiscard]] bool running(StepId step) const { return started_.at(step) > done_.at(step); }
  [[nodiscard]] bool finished() const { return unfinished_ == 0; }  // every step has done all iterations

 private:
  // An edge of the marked graph.
  struct MarkedEdge {
    StepId to;
    bool of_lane;         // else it was added to the graph
    std::int64_t tokens;  // below 0: taken before they were there
  };
  void end(StepId step, std::vector<Instance>& released);
  [[nodiscard]] bool rests(StepId step) const {  // in the iteration that it starts next
    return !rhythms_.empty() && rhythms_[step].rests_in(started_[step]);
  }
  void release_if_enabled(StepId step, std::vector<Instance>& released);
  void pass_through_rests(std::vector<Instance>& released);

  std::int64_t iterations_;
  std::vector<MarkedEdge> edges_;
  std::vector<std::vector<std::uint32_t>> in_, out_;  // edges by step
  // By step: incoming edges without a token, and those of them that are the lane's.
  std::vector<std::uint32_t> empty_inputs_, empty_of_lane_;
  std::vector<Rhythm> rhythms_;  // by step; empty where no step ever rests
  std::vector<StepId> resting_;  // that have started, and are to end at once
  std::vector<std::int64_t> started_, done_;
  std::size_t unfinished_;
};

}  // namespace dear
