#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dear/schedule/conductor/drive.h"
#include "dear/schedule/conductor/graph_conductor.h"
#include "dear/schedule/policies/schedule.h"

namespace dear::conductor {

// Runs a schedule in live training, where a program computes in its own order. The program reports when a
// layer's gradients are complete and when it commits. The conductor then starts the collectives and updates
// that may run, and makes the program wait before it reads parameters or gradients that are not complete. It
// is a GraphConductor that counts, for each bucket, what its parameters and gradients still wait for.
//
// [Note: issued ahead] A group runs its collectives one after another by itself. So the conductor issues a
// collective as soon as its data is complete and its predecessor has been issued, whether that is done or
// not: no thread has to wake between two collectives.
//
// [Note: buckets that change before the commit] Under a policy that updates ahead of the commit, a bucket's
// gradients are zeroed and its parameters overwritten while the program may still be in its backward. So from
// the bucket's last gradient until commit() its parameters do not count as whole, nor its gradients as free,
// however far the lanes have come. A wait for them in this time throws a ScheduleError at once, because the
// lanes may need the rest of the backward to go on; a thread that has no part in it may wait for the commit.
//
// Threads: methods marked [program] are called from the one thread that trains; executors call ended() from
// any thread.
class Conductor : private GraphConductor {
 public:
  struct Options {
    int rank = 0;                                                       // for messages
    std::chrono::duration<double> timeout = std::chrono::seconds(120);  // of a wait in which no step ends
    bool record = false;                                                // keep spans
  };
  // Runs an update on the calling thread: for updates on the compute lane.
  using Updater = std::function<void(const Update&)>;

  // `network`, and `update`, which runs updates and the codec of compressed gradients, must outlive this
  // object. Their start() is called without a lock, one at a time: see [Note: started without a lock].
  // ScheduleError for a schedule that can only be simulated, or that has several network lanes.
  Conductor(const Schedule& schedule, LaneExecutor& network, LaneExecutor& update, Updater inline_update,
            Options options);

  // [program] Reports that every gradient of the layer is in its bucket. At most once an iteration; commit()
  // reports the layers that were not reported.
  void backward_done(LayerId layer);
  // [program] Ends the iteration: all gradients are final. Runs the compute lane's updates; returns without
  // waiting for the other lanes.
  void commit();
  // [program] Waits until nothing is at work: then all that may start before the next commit has ended. For
  // collectives of the caller's own between backward and step(): the codec and updates issue others when they
  // are done, which may be sooner on one rank than on another.
  void quiesce();
  // [program] After quiesce(): the reductions of this iteration's gradients that wait for the commit, in the
  // order of their lane. The same on every rank that has reported the same layers.
  [[nodiscard]] std::vector<StepId> reductions_to_come() const;
  // [program] Waits for rank 0's decision of the last committed iteration; at once without such a step.
  void wait_decision();
  // [program] Waits until parameters of every committed iteration are whole and gradients are free.
  void synchronize();
  using GraphConductor::drain;
  void ended(const StepEnd& end);  // from the executors

  // One atomic load each. Whether the parameters of `bucket` are those of the last commit; whether only the
  // program uses its gradients.
  [[nodiscard]] bool parameters_whole(BucketId bucket) const {
    return parameters_pending_[bucket].load(std::memory_order_acquire) == 0;
  }
  [[nodiscard]] bool gradients_free(BucketId bucket) const {
    return gradients_busy_[bucket].load(std::memory_order_acquire) == 0;
  }
  // Whether there is nothing to wait for: no bucket has pending parameters or busy gradients.
  [[nodiscard]] bool idle() const { return unsettled_.load(std::memory_order_acquire) == 0; }
  [[nodiscard]] bool all_parameters_whole() const {
    return pending_buckets_.load(std::memory_order_acquire) == 0;
  }
  // Whether the bucket may change before the next commit: see [Note: buckets that change before the commit].
  [[nodiscard]] bool changes_now(BucketId bucket) const;
  // Wait until the parameters are whole, or the gradients are free. They throw the failure, or a TimeoutError
  // that names the step they waited for. From any thread that computes.
  enum class Before : std::uint8_t { refuse, wait };  // what becomes of a wait before the commit
  void wait_parameters(BucketId bucket, Before commit = Before::refuse);
  void wait_gradients(BucketId bucket, Before commit = Before::refuse);

  using GraphConductor::failure;
  using GraphConductor::keep_failure;
  using GraphConductor::throw_if_failed;
  [[nodiscard]] std::int64_t iteration() const {
    return iteration_.load(std::memory_order_relaxed);
  }  // commits so far

  // Says what the program waits for. Put into words only for who reads a record or an error.
  struct Awaited {
    const char* what;
    std::uint32_t number;
    [[nodiscard]] std::string text() const;  // "the gradients of bucket 2"
  };
  struct Wait {
    Awaited what;
    std::int64_t iteration;
    double begin_seconds, end_seconds;
  };
  struct Record {
    std::vector<StepSpan> steps;  // of the network and update lanes, and updates of the compute lane
    std::vector<Wait> waits;
  };
  [[nodiscard]] Record record() const;  // a copy of what was kept so far
  [[nodiscard]] double exposed_seconds() const { return waited_seconds(); }
  // Seconds of the schedule's collectives, each from when all ranks had come to it.
  [[nodiscard]] double communication_seconds() const {
    return communication_seconds_.load(std::memory_order_relaxed);
  }
  using GraphConductor::wait_count;

 private:
  Started start(Instance which);
  void on_released(const Instance& which) override;
  void on_start(StepId step) override;
  void on_done(StepId step) override;
  [[nodiscard]] BucketId bucket_read_by(StepId step) const;
  [[nodiscard]] LaneKind kind_of(StepId step) const;
  void settle(BucketId bucket);
  void expect_steps(BucketId bucket);
  void hold(BucketId bucket, std::int64_t iteration);
  void release(BucketId bucket);
  void require_committed(BucketId bucket, const char* what) const;
  [[nodiscard]] bool updates_ahead(BucketId bucket) const;
  void wait(Lock& lock, const Awaited& what, std::span<const StepId> steps,
            const std::function<bool()>& condition);

  const Schedule& schedule_;
  LaneExecutor& network_;
  LaneExecutor& update_;
  Updater inline_update_;
  std::vector<bool>
      reads_gradients_;  // by step: the collective, of a chunk too, or encode that does so first
  std::vector<StepId> inline_updates_;  // on the compute lane, in order
  std::vector<Wait> waits_;
  std::vector<std::int64_t> held_;  // by bucket: iterations in which it was pending and busy so far

  std::unique_ptr<std::atomic<int>[]> parameters_pending_, gradients_busy_;
  std::atomic<int> pending_buckets_{0};
  std::atomic<int> unsettled_{0};
  std::atomic<std::int64_t> iteration_{0};
  std::atomic<double> communication_seconds_{0};
};

}  // namespace dear::conductor
