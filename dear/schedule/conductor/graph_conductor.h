#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
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
//
// [Note: started without a lock] A start may run code of the user, such as an update of his optimiser or a
// hook, so no lock is held meanwhile. One thread starts at a time, and goes on as long as something may
// start: a thread that reports an end in this time leaves what it releases to that one. So the order of a
// lane is kept, and when a [program] method returns, all that may start has been started.
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
  // Starts a step of an issued lane. Where it is under way then, one call of ended() follows from any thread.
  // What it throws is a failure.
  using Start = std::function<Started(Instance)>;

  // Reads the graph only here. Of lanes whose steps may start at the same time, the one that stands first in
  // `issued` starts first. ScheduleError for a graph that cannot run.
  GraphConductor(const Graph& graph, const std::vector<LaneId>& issued, Start start, Options options);
  virtual ~GraphConductor() = default;
  GraphConductor(const GraphConductor&) = delete;
  GraphConductor& operator=(const GraphConductor&) = delete;

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
  // this object is destroyed. It returns because every step that was started ends.
  void drain() noexcept;

  // From who runs what was started. An end in another iteration than the one under way is a failure.
  void ended(const StepEnd& end);

  // Keeps a failure that was met where it cannot be thrown, for every later call to throw.
  void keep_failure(std::exception_ptr error);
  [[nodiscard]] std::exception_ptr failure() const;  // one atomic load where there is none
  void throw_if_failed() const;

  // With Options::record: what was done, in the order of ends.
  [[nodiscard]] std::vector<StepSpan> spans() const;
  // With Options::record: waits of await(), done() and await_done(), each for a step.
  [[nodiscard]] std::vector<StepSpan> waits() const;
  // In which the program waited here, and how often.
  [[nodiscard]] double waited_seconds() const { return waited_seconds_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t wait_count() const { return wait_count_.load(std::memory_order_relaxed); }

 protected:
  // For one that keeps more of the steps than this: it starts by begin() when it has been made. `free`: the
  // lanes whose order does not bind the steps. The steps of an issued lane that is not free start one by one.
  GraphConductor(const Graph& graph, const std::vector<LaneId>& issued, Start start, Options options,
                 FreeLaneSet free);
  using Lock = std::unique_lock<std::mutex>;
  void begin();
  // Under the lock, and quick: a step may start, is about to be started, has been done.
  virtual void on_released(const Instance& /*which*/) {}
  virtual void on_start(StepId /*step*/) {}
  virtual void on_done(StepId /*step*/) {}

  [[nodiscard]] Lock lock() const { return Lock(mutex_); }
  // Steps of the program are done; `issue()` then starts what they release.
  void complete(StepId step);
  void complete(const StepSpan& span) {  // the same, recorded
    if (options_.record) spans_.push_back(span);
    complete(span.which.step);
  }
  // Starts what may start, lets go of the lock meanwhile, and throws the failure.
  void issue(Lock& lock);
  [[nodiscard]] bool quiet() const { return at_work_ == 0 && !issuing_; }  // nothing is at work
  struct Waited {
    double begin_seconds, end_seconds;
  };
  // Waits for a condition of this object's state, which `steps` bring about; none where there was nothing to
  // wait for. TimeoutError that says for what, and names the step that is furthest behind.
  std::optional<Waited> wait(Lock& lock, const std::function<std::string()>& what,
                             std::span<const StepId> steps, const std::function<bool()>& condition);
  [[nodiscard]] const Frontier& frontier() const { return frontier_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const std::vector<StepSpan>& recorded() const { return spans_; }  // under the lock

 private:
  struct IssuedLane {
    std::vector<StepId> steps;
    std::size_t next = 0;  // in `steps`: the one to start next
  };
  std::optional<Instance> take_next();
  void start_all(Lock& lock);
  void fail(std::exception_ptr error);
  void throw_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  void await(Lock& lock, StepId step, const std::function<bool()>& condition);

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
  std::atomic<bool> failed_{false};  // whether there is one
  SteadyTime last_progress_;
  std::vector<StepSpan> spans_, waits_;
  std::vector<std::int64_t> given_;  // by step: iterations in which it was started here, or rested
  std::size_t at_work_ = 0;          // steps that were started and have not ended
  bool issuing_ = false;             // [Note: started without a lock]
  std::thread::id issuer_;
  std::atomic<double> waited_seconds_{0};
  std::atomic<std::int64_t> wait_count_{0};
};

}  // namespace dear::conductor
