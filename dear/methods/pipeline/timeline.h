#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/methods/pipeline/orders.h"
#include "dear/methods/pipeline/stages.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/graph/graph.h"

namespace dear::methods::pipeline {

// Two stages that read the same parameters send each other the gradients of an iteration, when they have
// them, and both update.
struct Exchange {
  int stages[2] = {0, 0};
  Transfer there{}, back{};
};

// What is played: how long everything takes.
struct PipelineTimes {
  PipelineShape shape;
  std::vector<StageSeconds> stages;
  // By cut: from stage s to s + 1, and from s + 1 to s. Nothing is sent within a place.
  std::vector<Transfer> activations, gradients;
  std::vector<Exchange> exchanges{};
};

// Steps on a lane for each place, and a lane for each ordered pair of places between which something
// travels, in the order in which its sender computes; a latency is a step on a lane of its own. Each
// direction of each link is its own; no two links share anything.
struct Lowered {
  struct Message {
    int from = 0, to = 0;  // places
    bool is_latency = false;
  };
  struct Work {
    Task task;                         // of a message: that which makes it
    std::optional<Message> message{};  // none: the task itself
  };
  Graph graph;
  std::vector<Work> work;       // by step
  std::vector<double> seconds;  // by step
};
// ConfigError for times that are negative or not finite, or another number of them than stages and cuts.
Lowered lower(const PipelineTimes& times);

// For how long a place had nothing to compute because something had not come; and how much of that the
// message was under way. In the rest the other place had not yet made it, or had others to send first.
struct Wait {
  double seconds = 0;
  double on_link_seconds = 0;
};

// One iteration, from the first forward to the last gradient, each step as soon as it can be.
struct Played {
  struct Place {
    double busy_seconds = 0;
    double bubble_seconds = 0;      // the rest of the iteration
    std::vector<Wait> waits_for{};  // by place
  };
  double iteration_seconds = 0;
  std::vector<Place> places;
  std::vector<conductor::StepSpan> spans;
};
Played play(const Lowered& lowered, int places);
Played play(const PipelineTimes& times);

// As any executor writes it, for a timeline. `network` says how it was modelled.
Trace to_trace(const Lowered& lowered, const Played& played, const std::string& title,
               const std::string& network);

// Planned depths of warm-up: the period of a pipeline in its steady state is the longest of what a place
// computes, what a link carries one way, and the round trip from a stage to the last and back divided by its
// warm-up. So a stage gets round trip / period, rounded up, but no less than least_warm_up() has, and at most
// `most` (by stage: what its memory holds) and what the stage in front has. For schedules without a warm-up
// it is empty.
std::vector<int> planned_warm_up(const PipelineTimes& times, const std::vector<int>& most);

}  // namespace dear::methods::pipeline
