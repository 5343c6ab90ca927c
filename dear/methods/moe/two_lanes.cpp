#include "dear/methods/moe/two_lanes.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/conductor/drive.h"

namespace dear::methods::moe {
namespace {

using conductor::StepSpan;

Activity activity_of(const Instruction& instruction) {
  if (communicates(instruction.kind)) return Activity::communication;
  switch (instruction.pass) {
    case Pass::forward:
      return Activity::forward;
    case Pass::backward:
      return Activity::backward;
    case Pass::update:
      break;
  }
  return Activity::update;
}

double overlap(const StepSpan& a, double from, double to) {
  return std::max(0.0, std::min(a.end_seconds, to) - std::max(a.begin_seconds, from));
}

}  // namespace

Lowered lower(const InstructionGraph& graph) {
  Lowered lowered;
  lowered.compute = lowered.graph.add_lane();
  lowered.network = lowered.graph.add_lane();
  std::vector<StepId> step_of(graph.size());
  for (const InstructionId id : graph.order()) {
    step_of[id] = lowered.graph.add_step(communicates(graph[id].kind) ? lowered.network : lowered.compute);
    lowered.seconds.push_back(graph[id].seconds);
  }
  for (const InstructionId id : graph.order()) {
    for (const InstructionId before : graph.predecessors(id))
      lowered.graph.add_edge({step_of[before], step_of[id]});
    for (const InstructionId before : graph[id].after_previous)
      lowered.graph.add_edge({step_of[before], step_of[id], 1});
  }
  return lowered;
}

Times play(const InstructionGraph& graph, std::int64_t iterations) {
  if (iterations < 1)
    throw ConfigError(fmt::format("{} iterations cannot be played: give at least 1", iterations));
  const Lowered lowered = lower(graph);
  Times times;
  times.spans = conductor::drive(lowered.graph, iterations, lowered.seconds);

  // Spans of a lane follow one another, and are in the order of their ends.
  std::vector<StepSpan> computing, communicating;
  double from = 0, to = 0;
  for (const StepSpan& span : times.spans) {
    const bool network = lowered.graph.lane_of(span.which.step) == lowered.network;
    (network ? communicating : computing).push_back(span);
    if (span.which.iteration == iterations - 2 && !network) from = span.end_seconds;
    if (iterations == 1 || (span.which.iteration == iterations - 1 && !network)) to = span.end_seconds;
  }
  times.iteration_seconds = to - from;
  for (const StepSpan& span : computing) times.compute_seconds += overlap(span, from, to);
  std::size_t first = 0;  // of computing: those before ended before the collective begins
  for (const StepSpan& sent : communicating) {
    const double seconds = overlap(sent, from, to);
    double exposed = seconds;
    while (first < computing.size() && computing[first].end_seconds <= sent.begin_seconds) ++first;
    for (std::size_t i = first; i < computing.size() && computing[i].begin_seconds < sent.end_seconds; ++i)
      exposed -= overlap(computing[i], std::max(sent.begin_seconds, from), std::min(sent.end_seconds, to));
    exposed = std::max(0.0, exposed);
    times.network_seconds += seconds;
    times.exposed_seconds += exposed;
    if (graph[graph.order()[sent.which.step]].kind != Kind::all_to_all) continue;
    times.all_to_all_seconds += seconds;
    times.exposed_all_to_all_seconds += exposed;
  }
  return times;
}

Trace to_trace(const InstructionGraph& graph, const Times& times, const std::string& title,
               const std::string& network) {
  Trace trace{.title = title, .network = network, .spans = {}};
  for (const StepSpan& span : times.spans) {
    const Instruction& instruction = graph[graph.order()[span.which.step]];
    trace.spans.push_back({.rank = 0,
                           .lane = communicates(instruction.kind) ? "network" : "compute",
                           .name = instruction.parts == 1
                                       ? instruction.name
                                       : fmt::format("{}, part {} of {}", instruction.name,
                                                     instruction.part + 1, instruction.parts),
                           .activity = activity_of(instruction),
                           .iteration = span.which.iteration,
                           .step = span.which.step,
                           .begin_seconds = span.begin_seconds,
                           .end_seconds = span.end_seconds});
  }
  return trace;
}

}  // namespace dear::methods::moe
