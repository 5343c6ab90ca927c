#include "dear/schedule/conductor/conductor.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "dear/base/os/interruption.h"
#include "dear/base/vocabulary/error.h"
#include "dear/schedule/conductor/runnable.h"
#include "dear/schedule/conductor/unlocked.h"

namespace dear::conductor {
std::string Conductor::Awaited::text() const { return fmt::format("{} {}", what, number); }

Conductor::Conductor(const Schedule& schedule, LaneExecutor& network, LaneExecutor& beside,
                     Updater inline_update, Options options)
    : schedule_(schedule),
      network_(network),
      beside_(beside),
      inline_update_(std::move(inline_update)),
      options_(options),
      reads_gradients_(schedule.steps().size()),
      frontier_(schedule.graph(), {.free = free_lanes(schedule, {.compute = true, .network = true})}),
      last_progress_(SteadyClock::now()),
      issued_(schedule.steps().size()),
      held_(schedule.bucket_count()),
      parameters_pending_(std::make_unique<std::atomic<int>[]>(schedule.bucket_count())),
      gradients_busy_(std::make_unique<std::atomic<int>[]>(schedule.bucket_count())) {
  require_runnable(schedule);
  for (StepId id = 0; id < schedule.steps().size(); ++id) {
    const auto* communicate = std::get_if<Communicate>(&schedule.steps()[id].work);
    const auto* encode = std::get_if<Encode>(&schedule.steps()[id].work);
    reads_gradients_[id] = (communicate != nullptr && communicate->payload == Payload::gradients &&
                            communicate->collective != Collective::all_gather) ||
                           (encode != nullptr && encode->round == 0);
  }
  network_lane_.steps = schedule.steps_on(LaneKind::network);
  for (const StepId id : schedule.steps_on(LaneKind::compute))
    if (std::holds_alternative<Update>(schedule.steps()[id].work)) inline_updates_.push_back(id);
  // This releases compute steps only: no other step may start before a gradient is there.
  std::vector<Instance> released = frontier_.start();
  Lock lock(mutex_);
  start_released(lock, released);
}

// The frontier moves under the lock, so steps start in the same order on every rank; start() of an executor
// only queues. An executor that throws, such as the wire on a group that has failed, is a failure like any
// other.
//
// [Note: steps that end at their start] Their start() may run code of the user, such as an update of his
// optimiser or a hook, which may wait for a thread that waits here: so it runs without the lock. All of them
// start on the program's thread, so nothing else moves the frontier meanwhile. `released` grows; what an
// update releases is issued before the next update is started, so that on one stream the two alternate.
void Conductor::start_released(Lock& lock, std::vector<Instance>& released) {
  try {
    for (std::size_t i = 0; i < released.size(); ++i) {
      const Instance which = released[i];
      const LaneKind kind = kind_of(which.step);
      if (kind == LaneKind::codec && reads_gradients_[which.step]) begin_reading(which.step);
      if (kind == LaneKind::update || kind == LaneKind::codec) start(lock, which.step, released);
      if (kind == LaneKind::network && reads_gradients_[which.step]) {
        const BucketId bucket = std::get<Communicate>(schedule_.steps()[which.step].work).bucket;
        if (updates_ahead(bucket) && held_[bucket] == which.iteration) hold(bucket, which.iteration);
      }
      if (i + 1 == released.size() || (kind == LaneKind::update && beside_.ends_at_start()))
        issue_in_order(lock, released);
    }
  } catch (...) {
    --at_work_;
    if (!failure_) failure_ = std::current_exception();
  }
  released.clear();
}

void Conductor::issue_in_order(Lock& lock, std::vector<Instance>& released) {
  NetworkLane& lane = network_lane_;
  while (!lane.steps.empty()) {
    const StepId step = lane.steps[lane.next];
    if (issued_[step] == frontier_.started(step)) return;  // not released yet
    lane.next = (lane.next + 1) % lane.steps.size();
    if (reads_gradients_[step]) begin_reading(step);
    start(lock, step, released);
  }
}

// From now on the gradients that the step reads first are busy. Under updates ahead of the commit they are
// already held.
void Conductor::begin_reading(StepId step) {
  const Work& work = schedule_.steps()[step].work;
  const auto* encode = std::get_if<Encode>(&work);
  const BucketId bucket = encode != nullptr ? encode->bucket : std::get<Communicate>(work).bucket;
  if (updates_ahead(bucket)) return;
  gradients_busy_[bucket].fetch_add(1, std::memory_order_release);
  unsettled_.fetch_add(1, std::memory_order_release);
}

void Conductor::start(Lock& lock, StepId step, std::vector<Instance>& released) {
  const Instance which{step, issued_[step]++};
  LaneExecutor& executor = kind_of(step) == LaneKind::network ? network_ : beside_;
  ++at_work_;
  if (!executor.ends_at_start()) return executor.start(which, schedule_.steps()[step]);
  {
    const Unlocked without(lock);
    executor.start(which, schedule_.steps()[step]);
  }
  if (failure_) std::rethrow_exception(failure_);
  finish(step, released);
  --at_work_;
}

LaneKind Conductor::kind_of(StepId step) const {
  return schedule_.lanes()[schedule_.steps()[step].lane].kind;
}

// Ends one use of the bucket's gradients. They are busy while their reduction runs, and from the commit until
// their update is done; in between the program may look at them.
void Conductor::settle(BucketId bucket) {
  gradients_busy_[bucket].fetch_sub(1, std::memory_order_release);
  unsettled_.fetch_sub(1, std::memory_order_release);
}

bool Conductor::updates_ahead(BucketId bucket) const {
  return std::get<Update>(schedule_.steps()[schedule_.update_of(bucket)].work).options ==
         OptionsOf::last_commit;
}

// From now on the bucket waits for its updates and its publishers, one for each chunk.
void Conductor::expect_steps(BucketId bucket) {
  const auto publishers = static_cast<int>(schedule_.publishers_of(bucket).size());
  const auto updates = static_cast<int>(schedule_.updates_of(bucket).size());
  parameters_pending_[bucket].fetch_add(publishers, std::memory_order_release);
  gradients_busy_[bucket].fetch_add(updates, std::memory_order_release);
  pending_buckets_.fetch_add(publishers, std::memory_order_release);
  unsettled_.fetch_add(publishers + updates, std::memory_order_release);
}

// From now on the bucket also waits for the commit.
void Conductor::hold(BucketId bucket, std::int64_t iteration) {
  held_[bucket] = iteration + 1;
  parameters_pending_[bucket].fetch_add(1, std::memory_order_release);
  gradients_busy_[bucket].fetch_add(1, std::memory_order_release);
  pending_buckets_.fetch_add(1, std::memory_order_release);
  unsettled_.fetch_add(2, std::memory_order_release);
  expect_steps(bucket);
}

void Conductor::require_committed(BucketId bucket, const char* what) const {
  if (held_[bucket] <= iteration() || !updates_ahead(bucket)) return;
  throw ScheduleError(fmt::format(
      "rank {}: the {} of bucket {} are wanted between backward and step(), but policy {} changes "
      "them there: look at them after step(), or train with policy dear",
      options_.rank, what, bucket, schedule_.policy()));
}

void Conductor::finish(StepId step, std::vector<Instance>& released) {
  frontier_.complete(step, released);
  last_progress_ = SteadyClock::now();
  const Work& work = schedule_.steps()[step].work;
  const auto end_of = [&](BucketId bucket, bool ends_use_of_gradients) {
    if (ends_use_of_gradients) settle(bucket);
    const std::vector<StepId>& publishers = schedule_.publishers_of(bucket);
    if (std::find(publishers.begin(), publishers.end(), step) == publishers.end()) return;
    parameters_pending_[bucket].fetch_sub(1, std::memory_order_release);
    pending_buckets_.fetch_sub(1, std::memory_order_release);
    unsettled_.fetch_sub(1, std::memory_order_release);
  };
  if (const auto* update = std::get_if<Update>(&work)) {
    end_of(update->bucket, true);
  } else if (const auto* communicate = std::get_if<Communicate>(&work);
             communicate != nullptr && is_of_bucket(communicate->payload)) {
    end_of(communicate->bucket, reads_gradients_[step] && !updates_ahead(communicate->bucket));
  } else if (const auto* encode = std::get_if<Encode>(&work); encode != nullptr && encode->round == 0) {
    settle(encode->bucket);
  }
}

// Notifies under the lock: as soon as it is released, drain() may return and the conductor be destroyed.
void Conductor::ended(const StepEnd& end) {
  Lock lock(mutex_);
  --at_work_;
  progress_.notify_all();
  if (failure_) return;
  const auto [step, iteration] = end.span.which;
  if (end.error) {
    failure_ = end.error;
  } else if (iteration != frontier_.done(step)) {
    failure_ = std::make_exception_ptr(ScheduleError(
        fmt::format("rank {}: {} ended in iteration {}, but iteration {} is the one to end next",
                    options_.rank, name_of(schedule_.steps()[step].work), iteration, frontier_.done(step))));
  } else {
    finish(lock, end.span);
  }
}

void Conductor::finish(Lock& lock, const StepSpan& span) {
  if (options_.record) record_.steps.push_back(span);
  if (kind_of(span.which.step) == LaneKind::network)
    communication_seconds_ = communication_seconds() + (span.end_seconds - span.begin_seconds);
  std::vector<Instance> released;
  finish(span.which.step, released);
  start_released(lock, released);
}

void Conductor::keep_failure(std::exception_ptr error) {
  const Lock lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  progress_.notify_all();
}

void Conductor::drain() noexcept {
  Lock lock(mutex_);
  if (!failure_) failure_ = std::make_exception_ptr(ScheduleError("this run was ended"));
  progress_.wait(lock, [this] { return at_work_ == 0; });
}

std::exception_ptr Conductor::failure() const {
  const Lock lock(mutex_);
  return failure_;
}

void Conductor::throw_if_failed() const {
  if (auto error = failure()) std::rethrow_exception(error);
}

void Conductor::throw_timeout(const Awaited& what, std::span<const StepId> steps) const {
  const StepId step = *std::min_element(
      steps.begin(), steps.end(), [&](StepId a, StepId b) { return frontier_.done(a) < frontier_.done(b); });
  throw TimeoutError(fmt::format(
      "rank {}: waited {:.3g} s for {}, and nothing moved: '{}' of iteration {} has not ended. Is a peer "
      "stuck? A longer timeout helps only if it is merely slow.",
      options_.rank, options_.timeout.count(), what.text(), name_of(schedule_.steps()[step].work),
      frontier_.done(step)));
}

// The group bounds each collective by its own timeout, and can name the rank at fault. So this wait allows
// twice that time, and gives up only if the group did not.
template <typename Condition>
void Conductor::wait(Lock& lock, const Awaited& what, std::span<const StepId> steps, Condition condition) {
  if (failure_) std::rethrow_exception(failure_);
  if (condition()) return;
  const double begin = now_seconds();
  const auto patience = std::chrono::duration_cast<SteadyClock::duration>(options_.timeout * 2);
  const SteadyTime entered = SteadyClock::now();
  for (;;) {
    const SteadyTime until = std::max(last_progress_, entered) + patience;
    const SteadyTime check = SteadyClock::now() + os::kInterruptionInterval;
    const bool moved = progress_.wait_until(lock, std::min(until, check)) == std::cv_status::no_timeout;
    if (failure_) std::rethrow_exception(failure_);
    if (condition()) break;
    if (SteadyClock::now() >= check) {
      lock.unlock();
      os::check_interruption();
      lock.lock();
      if (failure_) std::rethrow_exception(failure_);
      if (condition()) break;
    }
    if (!moved && SteadyClock::now() >= std::max(last_progress_, entered) + patience)
      throw_timeout(what, steps);
  }
  const double end = now_seconds();
  exposed_seconds_ = exposed_seconds() + (end - begin);
  wait_count_.fetch_add(1, std::memory_order_relaxed);
  if (options_.record) record_.waits.push_back({what, iteration(), begin, end});
}

void Conductor::backward_done(LayerId layer) {
  const StepId step = schedule_.backward_of(layer);
  {
    Lock lock(mutex_);
    wait(lock, Awaited{"the gradients of layer", layer}, {&step, 1}, [&] { return frontier_.running(step); });
    std::vector<Instance> released;
    finish(step, released);
    start_released(lock, released);
    if (failure_) std::rethrow_exception(failure_);
  }
  progress_.notify_all();
}

void Conductor::commit() {
  std::vector<Instance> released;
  {
    Lock lock(mutex_);
    // Layers that this pass did not use may still wait for the last iteration's gathers.
    for (LayerId layer = 0; layer < schedule_.layer_count(); ++layer) {
      const StepId forward = schedule_.forward_of(layer);
      const StepId backward = schedule_.backward_of(layer);
      wait(lock, Awaited{"the parameters of layer", layer}, {&forward, 1},
           [&] { return frontier_.running(forward); });
      wait(lock, Awaited{"the gradients of layer", layer}, {&backward, 1},
           [&] { return frontier_.running(backward) || frontier_.done(backward) > iteration(); });
    }
    for (BucketId bucket = 0; bucket < schedule_.bucket_count(); ++bucket) {
      if (held_[bucket] <= iteration()) {
        held_[bucket] = iteration() + 1;
        expect_steps(bucket);
        continue;
      }
      parameters_pending_[bucket].fetch_sub(1, std::memory_order_release);
      gradients_busy_[bucket].fetch_sub(1, std::memory_order_release);
      pending_buckets_.fetch_sub(1, std::memory_order_release);
      unsettled_.fetch_sub(2, std::memory_order_release);
    }
    for (LayerId layer = 0; layer < schedule_.layer_count(); ++layer)
      finish(schedule_.forward_of(layer), released);
    // In the order of the backward pass, so that flushed buckets are released in the order of their lane.
    for (auto layer = static_cast<LayerId>(schedule_.layer_count()); layer-- > 0;) {
      const StepId backward = schedule_.backward_of(layer);
      if (frontier_.done(backward) <= iteration()) finish(backward, released);
    }
    finish(schedule_.commit(), released);
    iteration_.fetch_add(1, std::memory_order_relaxed);
    start_released(lock, released);
  }
  progress_.notify_all();

  for (const StepId step : inline_updates_) {
    const auto& update = std::get<Update>(schedule_.steps()[step].work);
    {
      Lock lock(mutex_);
      wait(lock, Awaited{"the reduced gradients of bucket", update.bucket}, {&step, 1},
           [&] { return frontier_.running(step); });
    }
    const double begin = now_seconds();
    try {
      inline_update_(update);
    } catch (...) {
      keep_failure(std::current_exception());
      throw;
    }
    Lock lock(mutex_);
    progress_.notify_all();
    if (!failure_) finish(lock, {{step, frontier_.done(step)}, begin, now_seconds()});
  }
  throw_if_failed();
}

bool Conductor::changes_now(BucketId bucket) const {
  const Lock lock(mutex_);
  return updates_ahead(bucket) && held_[bucket] > iteration();
}

void Conductor::wait_parameters(BucketId bucket, Before commit) {
  Lock lock(mutex_);
  if (commit == Before::refuse) require_committed(bucket, "parameters");
  wait(lock, Awaited{"the parameters of bucket", bucket}, schedule_.publishers_of(bucket),
       [&] { return parameters_whole(bucket); });
}

void Conductor::wait_gradients(BucketId bucket, Before commit) {
  Lock lock(mutex_);
  if (commit == Before::refuse) require_committed(bucket, "gradients");
  wait(lock, Awaited{"the gradients of bucket", bucket}, schedule_.updates_of(bucket),
       [&] { return gradients_free(bucket); });
}

void Conductor::quiesce() {
  Lock lock(mutex_);
  const StepId commit = schedule_.commit();
  wait(lock, Awaited{"what is at work in iteration", static_cast<std::uint32_t>(iteration())}, {&commit, 1},
       [&] { return at_work_ == 0; });
}

std::vector<StepId> Conductor::reductions_to_come() const {
  const Lock lock(mutex_);
  std::vector<StepId> steps = network_lane_.steps;
  std::erase_if(steps,
                [&](StepId step) { return !reads_gradients_[step] || frontier_.done(step) > iteration(); });
  return steps;
}

void Conductor::wait_decision() {
  const std::optional<StepId> step = schedule_.decision();
  if (!step) return;
  Lock lock(mutex_);
  const std::int64_t committed = iteration();
  wait(lock, Awaited{"rank 0's decision in iteration", static_cast<std::uint32_t>(committed - 1)},
       {&*step, 1}, [&] { return frontier_.done(*step) >= committed; });
}

void Conductor::synchronize() {
  for (BucketId bucket = 0; bucket < schedule_.bucket_count(); ++bucket) {
    wait_parameters(bucket);
    wait_gradients(bucket);
  }
}

Conductor::Record Conductor::record() const {
  const Lock lock(mutex_);
  return record_;
}

}  // namespace dear::conductor
