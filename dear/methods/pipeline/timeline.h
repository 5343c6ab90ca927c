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

// Two stages that read the same parameters send each other their own gradients, once an iteration and each as
// soon as its last micro-batch has added to it; both add them up and update.
struct Exchange {
  int stages[2] = {0, 0};
  Transfer there{}, back{};  // from the first to the second, and the other way
};

// The parts of a pipeline that is played, and how long each takes.
struct PipelineTimes {
  PipelineShape shape;
  std::vector<StageSeconds> stages;
  // By cut: from stage s to s + 1, and from s + 1 to s. Nothing is sent within a place.
  std::vector<Transfer> activations, gradients;
  std::vector<Exchange> exchanges{};
  // Between places, as the cluster has them between devices. Messages of bytes then, too.
  std::vector<SharedWire> shared_wires{};
};

// Steps on a lane for each place, and a lane for each ordered pair of places between which something
// travels, in the order in which its sender computes; a latency is a step on a lane of its own. Each
// direction of each link is its own. Links share what the cluster says that they share, and nothing else.
struct Lowered {
  struct Message {
    int from = 0, to = 0;  // places
    bool is_latency = false;
    double bytes = 0;
  };
  struct Work {
    Task task;                         // of a message: that which makes it
    std::optional<Message> message{};  // none: the task itself
  };
  Graph graph;
  std::vector<Work> work;       // by step
  std::vector<double> seconds;  // by step; of a message when it has its wires to itself
  std::vector<SharedWire> shared_wires{};
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

// Planned depths of warm-up. The period of a pipeline in its steady state is the longest of what a place
// computes, what a link carries one way, and the round trip from a stage to the last and back divided by its
// warm-up. So each stage gets as many more than the next as periods pass between the begin of a micro-batch
// in it and the next stage, and back: at least 1, for stages with as many as each other move in lockstep. At
// most all micro-batches, and `most` (by stage: what its memory holds). For schedules without a warm-up it is
// empty.
std::vector<int> planned_warm_up(const PipelineTimes& times, const std::vector<int>& most);

}  // namespace dear::methods::pipeline
