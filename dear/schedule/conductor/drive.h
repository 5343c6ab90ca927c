#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "dear/schedule/graph/frontier.h"
#include "dear/schedule/graph/graph.h"
#include "dear/schedule/policies/schedule.h"

// Runs of a replay: a Frontier, an executor for each kind of lane, and a clock (conductor.h is for live
// training). The network is real, and computation is a sleep.
namespace dear::conductor {

// How far a step is when its start returns: under way, so that its end is told once; or done, and nobody
// tells its end. On a stream of a device a step is done when it is enqueued.
enum class Started : std::uint8_t { under_way, done };

// Executes the steps of a lane, for real, modelled or timed. start() returns at once; the end of a step that
// is under way then is told to the clock or the OnStepEnd that the executor was made with. Only live training
// takes steps that are done.
class LaneExecutor {
 public:
  virtual ~LaneExecutor() = default;
  virtual Started start(Instance which, const Step& step) = 0;
};

// The end of the run of a step in one iteration.
struct Completion {
  Instance which;
  double at_seconds;
};

// The clock of a run: which step ends next, and when.
class Completions {
 public:
  virtual ~Completions() = default;
  virtual Completion next() = 0;  // waits for it; throws the error of an executor that failed
  [[nodiscard]] virtual double now_seconds() = 0;
};

// When the run of a step in one iteration began and ended.
struct StepSpan {
  Instance which;
  double begin_seconds;
  double end_seconds;
};

// How the run of a step ended. An executor with threads of its own tells it once for each start() that
// returned, from any thread.
struct StepEnd {
  StepSpan span;               // without times after an error
  std::exception_ptr error{};  // null: the step is done
};
using OnStepEnd = std::function<void(const StepEnd&)>;

// By kind of lane.
struct LaneExecutors {
  LaneExecutor& compute;
  LaneExecutor& update;  // the program: updates, and the codec of compressed gradients
  LaneExecutor& network;
};

// Runs `iterations` iterations of a graph, whatever its steps do: `start` is called for each run of a step,
// and its end comes from `completions`. Returns a span for each, from its release to its end, in order of
// completion. ScheduleError for an end of what is not running; `name` describes a step in it.
std::vector<StepSpan> drive(const Graph& graph, std::int64_t iterations,
                            const std::function<void(Instance)>& start, Completions& completions,
                            const std::function<std::string(StepId)>& name);
// Runs a graph in virtual time, which passes only from one end to the next: each run of a step takes its
// seconds. Ends at one instant come in the order in which their steps were started.
std::vector<StepSpan> drive(const Graph& graph, std::int64_t iterations,
                            const std::vector<double>& seconds_of_step);
// Runs a schedule, each step on the executor of its lane's kind.
std::vector<StepSpan> drive(const Schedule& schedule, std::int64_t iterations, LaneExecutors executors,
                            Completions& completions);

}  // namespace dear::conductor
