#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "dear/schedule/frontier.h"
#include "dear/schedule/schedule.h"

// Drives whole runs of a simulation or a replay (live training: conductor.h): a Frontier, an executor for each
// kind of lane, and a clock. In a simulation every executor is a model and the clock an event queue; in a replay
// the network is real and computation is slept.
namespace dear::exec {

// Executes the steps of a lane, for real, modelled or timed: start() returns at once, and the end is told to the Completions that the executor was made with.
class LaneExecutor {
 public:
  virtual ~LaneExecutor() = default;
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
  virtual Completion next() = 0;  // waits; throws what an executor failed with
  [[nodiscard]] virtual double now_seconds() = 0;
};

struct StepSpan {
  Instance which;
  double begin_seconds;
  double end_seconds;
};

// How a step ended that a real executor was given: told once for each start() that returned, from any thread.
struct StepEnd {
  StepSpan span;               // without times after an error
  std::exception_ptr error{};  // null: the step is done
};
using OnStepEnd = std::function<void(const StepEnd&)>;

struct LaneExecutors {
  LaneExecutor& compute;
  LaneExecutor& update;
  LaneExecutor& network;
};

// Runs `iterations` iterations; the spans are in order of completion.
std::vector<StepSpan> drive(const Schedule& schedule, std::int64_t iterations, LaneExecutors executors,
                            Completions& completions);

}  // namespace dear::exec
