#include "dear/schedule/graph/precedence.h"

#include <algorithm>

namespace dear::graph {

Precedence::Precedence(std::size_t step_count, const std::vector<Edge>& edges) : successors_(step_count) {
  for (const Edge& edge : edges) successors_[edge.from].push_back({edge.to, edge.back});
  for (std::vector<Successor>& successors : successors_) std::sort(successors.begin(), successors.end());
}

std::vector<std::uint8_t> Precedence::crossings_from(StepId from) const {
  std::vector<std::uint8_t> crossings(successors_.size(), kBeyond);
  std::vector<StepId> open{from}, next;  // steps reached with `level` crossings, with one more
  for (std::uint8_t level = 0; level < kBeyond; ++level) {
    while (!open.empty()) {
      const StepId step = open.back();
      open.pop_back();
      if (crossings[step] <= level) continue;
      crossings[step] = level;
      for (const Successor& successor : successors_[step]) {
        if (successor.back == 0) open.push_back(successor.to);
        if (successor.back == 1) next.push_back(successor.to);
      }
    }
    open.swap(next);
  }
  return crossings;
}

bool Precedence::has_edge(StepId from, StepId to, std::uint32_t iterations) const {
  const std::vector<Successor>& successors = successors_[from];
  const auto found = std::lower_bound(successors.begin(), successors.end(), Successor{to, 0});
  return found != successors.end() && found->to == to && found->back <= iterations;
}

std::vector<StepId> Precedence::order_within_iteration() const {
  std::vector<std::size_t> waits_for(successors_.size(), 0);
  for (const std::vector<Successor>& successors : successors_)
    for (const Successor& successor : successors)
      if (successor.back == 0) ++waits_for[successor.to];
  std::vector<StepId> order;
  for (StepId step = 0; step < successors_.size(); ++step)
    if (waits_for[step] == 0) order.push_back(step);
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const Successor& successor : successors_[order[i]])
      if (successor.back == 0 && --waits_for[successor.to] == 0) order.push_back(successor.to);
  return order;
}

std::vector<StepId> Precedence::cycle_within_iteration() const {
  std::vector<bool> stuck(successors_.size(), true);
  for (const StepId step : order_within_iteration()) stuck[step] = false;
  const auto first = std::find(stuck.begin(), stuck.end(), true);
  if (first == stuck.end()) return {};

  // A stuck step waits for a stuck step, so walking from step to such a predecessor must come round.
  std::vector<StepId> stuck_predecessor(successors_.size());
  for (StepId step = 0; step < successors_.size(); ++step)
    for (const Successor& successor : successors_[step])
      if (successor.back == 0 && stuck[step]) stuck_predecessor[successor.to] = step;
  std::vector<StepId> walk{static_cast<StepId>(first - stuck.begin())};
  for (;;) {
    const StepId step = stuck_predecessor[walk.back()];
    const auto seen = std::find(walk.begin(), walk.end(), step);
    if (seen != walk.end()) {
      std::vector<StepId> cycle(seen, walk.end());
      std::reverse(cycle.begin(), cycle.end());
      return cycle;
    }
    walk.push_back(step);
  }
}

}  // namespace dear::graph
