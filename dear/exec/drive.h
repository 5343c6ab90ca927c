#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "dear/schedule/frontier.h"
#include "dear/schedule/schedule.h"

// Drives whole runs of a simulation or a replay (live training: conductor.h): a Frontier, a side for each
// kind of lane, and a clock. In a simulation every side is a model and the clock an event queue; in a replay
// the network is real and computation is slept.
namespace dear {

// Does steps: start() returns at once, and the end is told to the Completions that the side was made with.
class Side {
 public:
  virtual ~Side() = default;
  virtual void start(Instance which, const Step& step) = 0;
};

struct Completion {
  Instance which;
  double at_seconds;
};

// The clock: what ends next, and when.
class Completions {
 public:
  virtual ~Completions() = default;
  virtual Completion next() = 0;  // waits; throws what a side failed with
  [[nodiscard]] virtual double now_seconds() = 0;
};

struct StepSpan {
  Instance which;
  double begin_seconds;
  double end_seconds;
};

// How a step ended that a real side was given: told once for each start() that returned, from any thread.
struct StepEnd {
  StepSpan span;               // without times after an error
  std::exception_ptr error{};  // null: the step is done
};
using OnStepEnd = std::function<void(const StepEnd&)>;

struct Sides {
  Side& compute;
  Side& update;
  Side& network;
};

// Runs `iterations` iterations; the spans are in order of completion.
std::vector<StepSpan> drive(const Schedule& schedule, std::int64_t iterations, Sides sides,
                            Completions& completions);

}  // namespace dear
