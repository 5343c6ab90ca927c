#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/graph/frontier.h"
#include "dear/schedule/graph/graph.h"

namespace dear::conductor {

// Runs a graph in a live program that computes in its own order, whatever the steps do. Steps of most lanes
// are the program's own: it waits until one may run, runs it, and reports its end; the order of such a lane
// is the program's. The others stand on lanes that are issued: as soon as a step may run and the one before
// it on its lane has been started, it is started too, on the thread that reported what it waited for. So
// every rank starts the steps of such a lane in the order of the lane, and no thread has to wake in between.
// conductor.h is the same for a Schedule, whose rules of SGD it knows.
//
// Threads: methods marked [program] are called from one thread at a time; ended() comes from any thread.
// After a failure nothing more is started, and every [program] method throws the failure.
class GraphConductor {
 public:
  struct Options {
    int rank = 0;                                                       // for messages
    std::chrono::duration<double> timeout = std::chrono::seconds(120);  // of a wait in which no step ends
    bool record = false;                                                // keep spans
    std::function<std::string(StepId)> name{};                          // describes a step in messages
  };
  // Starts a step of an issued lane: returns at once, and is followed by one call of ended() from any thread;
  // or throws, which is a failure. Called under a lock: it must not call this object.
  using Start = std::function<void(Instance)>;

  // Reads the graph only here. ScheduleError for a graph that cannot run.
  GraphConductor(const Graph& graph, const std::vector<LaneId>& issued, Start start, Options options);

  // [program] Waits until the program may run its step: the one of the oldest iteration in which it neither
  // was done nor rests.
  void await(StepId step);
  // [program] The program has run the step, which may have to be waited for: await() first.
  void done(StepId step);
  void done(StepId step, double begin_seconds, double end_seconds);  // the same, with what is recorded of it
  // [program] Runs `work` as the step: waits, calls it, and reports the step. What it throws is thrown on,
  // and the step is not reported.
  void run(StepId step, const std::function<void()>& work);
  // [program] Waits until the step, of any lane, has been done in iteration `iteration` (or rested there).
  void await_done(StepId step, std::int64_t iteration);
  // Starts nothing more, and returns when nothing that was started is under way any longer: call it before
  // this object is destroyed.
  void drain() noexcept;

  // From who runs what was started.
  void ended(const StepEnd& end);

  void throw_if_failed() const;

  // With Options::record: what was done, in the order of ends; and the program's waits, each for a step.
  [[nodiscard]] std::vector<StepSpan> spans() const;
  [[nodiscard]] std::vector<StepSpan> waits() const;
  // In which the program waited here.
  [[nodiscard]] double waited_seconds() const { return waited_seconds_.load(std::memory_order_relaxed); }

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct IssuedLane {
    std::vector<StepId> steps;
    std::size_t next = 0;  // in `steps`: the one to start next
  };
  void issue();
  void issue(IssuedLane& lane);
  void finish(const StepSpan& span);
  template <typename Condition>
  void wait(Lock& lock, StepId step, Condition condition);
  [[noreturn]] void throw_timeout(StepId step) const;

  std::vector<Rhythm> rhythms_;  // by step
  std::vector<bool> is_issued_;  // by step
  std::vector<IssuedLane> issued_;
  Start start_;
  Options options_;

  mutable std::mutex mutex_;
  std::condition_variable progress_;
  Frontier frontier_;
  std::vector<Instance> released_;  // of a completion; kept for its memory
  std::exception_ptr failure_;
  SteadyTime last_progress_;
  std::vector<StepSpan> spans_, waits_;
  std::vector<std::int64_t> given_;  // by step: iterations in which it was started here, or rested
  std::size_t at_work_ = 0;          // steps that were started and have not ended
  std::atomic<double> waited_seconds_{0};
};

}  // namespace dear::conductor
