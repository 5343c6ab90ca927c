#include "dear/schedule/frontier.h"

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear {

// Every step lies on a cycle with a single token (its lane, or its edge to itself where the lane is free), so
// no step ever runs in two iterations at once.
Frontier::Frontier(const Schedule& schedule, Options options)
    : iterations_(options.iterations),
      in_(schedule.steps().size()),
      out_(schedule.steps().size()),
      empty_inputs_(schedule.steps().size(), 0),
      started_(schedule.steps().size(), 0),
      done_(schedule.steps().size(), 0),
      unfinished_(options.iterations > 0 ? schedule.steps().size() : 0) {
  for (const Edge& edge : edges_with_lanes(schedule, options.free)) {
    const auto index = static_cast<std::uint32_t>(edges_.size());
    edges_.push_back({edge.to, edge.back});
    out_[edge.from].push_back(index);
    in_[edge.to].push_back(index);
    if (edge.back == 0) ++empty_inputs_[edge.to];
  }
}

std::vector<Instance> Frontier::start() {
  std::vector<Instance> released;
  for (StepId step = 0; step < started_.size(); ++step) release_if_enabled(step, released);
  return released;
}

std::vector<Instance> Frontier::complete(StepId step) {
  std::vector<Instance> released;
  complete(step, released);
  return released;
}

void Frontier::complete(StepId step, std::vector<Instance>& released) {
  if (step >= started_.size())
    throw ScheduleError(fmt::format("step {} cannot end: the schedule has {} steps", step, started_.size()));
  if (!running(step))
    throw ScheduleError(
        fmt::format("step {} cannot end: it is not running (it has ended {} of the {} times it was "
                    "released); report each end once, after the release",
                    step, done_[step], started_[step]));
  if (++done_[step] == iterations_) --unfinished_;
  for (const std::uint32_t index : out_[step]) {
    MarkedEdge& edge = edges_[index];
    if (edge.tokens++ == 0 && --empty_inputs_[edge.to] == 0) release_if_enabled(edge.to, released);
  }
}

void Frontier::release_if_enabled(StepId step, std::vector<Instance>& released) {
  if (empty_inputs_[step] != 0 || started_[step] == iterations_) return;
  for (const std::uint32_t index : in_[step])
    if (--edges_[index].tokens == 0) ++empty_inputs_[step];
  released.push_back({step, started_[step]++});
}

}  // namespace dear
