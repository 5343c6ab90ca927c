#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "dear/base/deadline.h"
#include "dear/exec/drive.h"
#include "dear/schedule/frontier.h"
#include "dear/schedule/schedule.h"

namespace dear::exec {

// Joins a schedule with a program that computes by itself: live training. The program says when a layer's
// gradients are there and when it commits; the conductor starts the collectives and updates that may then
// run, on the thread that brought the news, and makes the program wait where it would read what is not yet
// whole.
//
// [Note: issued ahead] A network carries its collectives one after another by itself. So the next one is
// handed to it as soon as its data is there and its predecessor has been handed over, done or not: no thread
// has to wake between two.
//
// [Note: buckets that change before the commit] Under a policy that updates ahead of the commit a bucket's
// gradients are zeroed and its parameters overwritten while the program may still be in its backward. From
// the moment in which its last gradient is there until commit() both are therefore neither whole nor free,
// however far the lanes have come; who waits for them in between gets a ScheduleError, at once and every
// time, for the lanes may need the rest of the backward to go on.
//
// Threads: methods marked [program] are called from one thread, the one that trains; ended() comes from any.
// After a failure nothing is started any more, and every [program] method throws it.
class Conductor {
 public:
  struct Options {
    int rank = 0;                                                       // for messages
    std::chrono::duration<double> timeout = std::chrono::seconds(120);  // without any progress, for each wait
    bool record = false;                                                // keep spans
  };
  // Runs an update on the calling thread: for updates on the compute lane.
  using Updater = std::function<void(const Update&)>;

  // `network` and `update` must outlive this object; each start() must return at once and be answered, from
  // any thread, by one ended(), or throw, which is a failure.
  // ScheduleError for a schedule that can only be simulated, or has several network lanes.
  Conductor(const Schedule& schedule, LaneExecutor& network, LaneExecutor& update, Updater inline_update, Options options);

  // [program] Every gradient of the layer is in its bucket. Once an iteration at most; a layer that was not
  // reported when commit() is called is reported by it.
  void backward_done(LayerId layer);
  // [program] Ends the iteration: all gradients are final. Runs the compute lane's updates; returns without
  // waiting for the other lanes.
  void commit();
  // [program] Waits for rank 0's decision of the last committed iteration; at once without such a step.
  void wait_decision();
  // [program] Waits until parameters of every committed iteration are whole and gradients are free.
  void synchronize();
  // Starts nothing more and returns when no executor is at work for this object any longer: before it is
  // destroyed. Bounded by the executors, each of which answers in the end.
  void drain() noexcept;

  // One atomic load each. Parameters of `bucket` are those of the last commit; nobody but the program uses
  // its gradients.
  [[nodiscard]] bool parameters_whole(BucketId bucket) const {
    return parameters_pending_[bucket].load(std::memory_order_acquire) == 0;
  }
  [[nodiscard]] bool gradients_free(BucketId bucket) const {
    return gradients_busy_[bucket].load(std::memory_order_acquire) == 0;
  }
  // Nothing to wait for anywhere: no bucket pending or busy.
  [[nodiscard]] bool idle() const { return unsettled_.load(std::memory_order_acquire) == 0; }
  [[nodiscard]] bool all_parameters_whole() const {
    return pending_buckets_.load(std::memory_order_acquire) == 0;
  }
  // Changed between the last commit and the next: see [Note: buckets that change before the commit].
  [[nodiscard]] bool changes_now(BucketId bucket) const;
  // Wait for it; throw the failure, or a TimeoutError that names the step waited for. From any thread that
  // computes.
  void wait_parameters(BucketId bucket);
  void wait_gradients(BucketId bucket);

  // From the executors. An end in another iteration than the one under way is a failure.
  void ended(const StepEnd& end);

  // For a failure outside of the executors, met where it cannot be thrown: every later call throws it.
  void keep_failure(std::exception_ptr error);
  [[nodiscard]] std::exception_ptr failure() const;
  void throw_if_failed() const;
  [[nodiscard]] std::int64_t iteration() const {
    return iteration_.load(std::memory_order_relaxed);
  }  // commits so far

  struct Wait {
    std::string what;  // "parameters of bucket 2"
    std::int64_t iteration;
    double begin_seconds, end_seconds;
  };
  struct Record {
    std::vector<StepSpan> steps;  // of the network and update lanes, and updates of the compute lane
    std::vector<Wait> waits;
  };
  [[nodiscard]] Record record() const;  // a copy of what was kept so far
  [[nodiscard]] double exposed_seconds() const { return exposed_seconds_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t wait_count() const { return wait_count_.load(std::memory_order_relaxed); }

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct NetworkLane {
    std::vector<StepId> steps;
    std::size_t next = 0;  // in `steps`: the one to issue next
  };
  void start_released(std::vector<Instance>& released);
  void issue_in_order();
  void start(StepId step);
  [[nodiscard]] LaneKind kind_of(StepId step) const;
  void finish(StepId step, std::vector<Instance>& released);
  void finish(const StepSpan& span);
  void settle(BucketId bucket);
  void expect_steps(BucketId bucket);
  void hold(BucketId bucket, std::int64_t iteration);
  void require_committed(BucketId bucket, const char* what) const;
  [[nodiscard]] bool updates_ahead(BucketId bucket) const;
  // "the gradients of bucket 2", put into words only for a record or an error.
  struct Awaited {
    const char* what;
    std::uint32_t number;
    [[nodiscard]] std::string text() const;
  };
  template <typename Condition>
  void wait(Lock& lock, const Awaited& what, std::span<const StepId> steps, Condition condition);
  [[noreturn]] void throw_timeout(const Awaited& what, std::span<const StepId> steps) const;

  const Schedule& schedule_;
  LaneExecutor& network_;
  LaneExecutor& update_;
  Updater inline_update_;
  Options options_;
  std::vector<bool> reduces_;  // by step: a collective that first reads gradients, or a chunk of them
  NetworkLane network_lane_;   // without steps where there is one rank alone
  std::vector<StepId> inline_updates_;  // on the compute lane, in order

  mutable std::mutex mutex_;
  std::condition_variable progress_;
  Frontier frontier_;
  std::exception_ptr failure_;
  SteadyTime last_progress_;
  Record record_;
  std::vector<std::int64_t> issued_;  // by step: iterations of it that an executor was given
  std::vector<std::int64_t> held_;    // by bucket: iterations in which it was pending and busy so far
  std::size_t at_work_ = 0;           // steps that an executor was given and has not answered

  std::unique_ptr<std::atomic<int>[]> parameters_pending_, gradients_busy_;
  std::atomic<int> pending_buckets_{0};
  std::atomic<int> unsettled_{0};
  std::atomic<std::int64_t> iteration_{0};
  std::atomic<double> exposed_seconds_{0};
  std::atomic<std::int64_t> wait_count_{0};
};

}  // namespace dear::exec
