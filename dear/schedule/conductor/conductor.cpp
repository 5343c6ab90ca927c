#include "dear/schedule/conductor/conductor.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/conductor/runnable.h"

namespace dear::conductor {
namespace {

// Lanes that the conductor starts, in the order in which they start what may start at the same time: what an
// update releases is issued before the next update, so that on one stream the two alternate.
std::vector<LaneId> issued_lanes(const Schedule& schedule) {
  std::vector<LaneId> lanes;
  for (const LaneKind kind : {LaneKind::network, LaneKind::update, LaneKind::codec})
    for (LaneId lane = 0; lane < schedule.lanes().size(); ++lane)
      if (schedule.lanes()[lane].kind == kind) lanes.push_back(lane);
  return lanes;
}

const Schedule& runnable(const Schedule& schedule) {
  require_runnable(schedule);
  return schedule;
}

}  // namespace

std::string Conductor::Awaited::text() const { return fmt::format("{} {}", what, number); }

Conductor::Conductor(const Schedule& schedule, LaneExecutor& network, LaneExecutor& update,
                     Updater inline_update, Options options)
    : GraphConductor(
          runnable(schedule).graph(), issued_lanes(schedule), [this](Instance which) { return start(which); },
          {.rank = options.rank,
           .timeout = options.timeout,
           .record = options.record,
           .name = [&schedule](StepId step) { return name_of(schedule.steps()[step].work); }},
          free_lanes(schedule, {.compute = true, .network = true})),
      schedule_(schedule),
      network_(network),
      update_(update),
      inline_update_(std::move(inline_update)),
      reads_gradients_(schedule.steps().size()),
      held_(schedule.bucket_count()),
      parameters_pending_(std::make_unique<std::atomic<int>[]>(schedule.bucket_count())),
      gradients_busy_(std::make_unique<std::atomic<int>[]>(schedule.bucket_count())) {
  for (StepId id = 0; id < schedule.steps().size(); ++id) {
    const auto* communicate = std::get_if<Communicate>(&schedule.steps()[id].work);
    const auto* encode = std::get_if<Encode>(&schedule.steps()[id].work);
    reads_gradients_[id] = (communicate != nullptr && communicate->payload == Payload::gradients &&
                            communicate->collective != Collective::all_gather) ||
                           (encode != nullptr && encode->round == 0);
  }
  for (const StepId id : schedule.steps_on(LaneKind::compute))
    if (std::holds_alternative<Update>(schedule.steps()[id].work)) inline_updates_.push_back(id);
  // This releases compute steps only: no other step may start before a gradient is there.
  begin();
}

LaneKind Conductor::kind_of(StepId step) const {
  return schedule_.lanes()[schedule_.steps()[step].lane].kind;
}

BucketId Conductor::bucket_read_by(StepId step) const {
  const Work& work = schedule_.steps()[step].work;
  const auto* encode = std::get_if<Encode>(&work);
  return encode != nullptr ? encode->bucket : std::get<Communicate>(work).bucket;
}

Started Conductor::start(Instance which) {
  LaneExecutor& executor = kind_of(which.step) == LaneKind::network ? network_ : update_;
  return executor.start(which, schedule_.steps()[which.step]);
}

// Under updates ahead of the commit, a bucket is held from its last gradient on.
void Conductor::on_released(const Instance& which) {
  if (kind_of(which.step) != LaneKind::network || !reads_gradients_[which.step]) return;
  const BucketId bucket = bucket_read_by(which.step);
  if (updates_ahead(bucket) && held_[bucket] == which.iteration) hold(bucket, which.iteration);
}

// From now on the gradients that the step reads first are busy, unless they are held anyway.
void Conductor::on_start(StepId step) {
  if (!reads_gradients_[step]) return;
  const BucketId bucket = bucket_read_by(step);
  if (updates_ahead(bucket)) return;
  gradients_busy_[bucket].fetch_add(1, std::memory_order_release);
  unsettled_.fetch_add(1, std::memory_order_release);
}

void Conductor::on_done(StepId step) {
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

void Conductor::ended(const StepEnd& end) {
  if (!end.error && kind_of(end.span.which.step) == LaneKind::network) {
    const Lock held = lock();
    communication_seconds_ = communication_seconds() + (end.span.end_seconds - end.span.begin_seconds);
  }
  GraphConductor::ended(end);
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

// From now on the bucket also waits for the commit, which releases it.
void Conductor::hold(BucketId bucket, std::int64_t iteration) {
  held_[bucket] = iteration + 1;
  parameters_pending_[bucket].fetch_add(1, std::memory_order_release);
  gradients_busy_[bucket].fetch_add(1, std::memory_order_release);
  pending_buckets_.fetch_add(1, std::memory_order_release);
  unsettled_.fetch_add(2, std::memory_order_release);
  expect_steps(bucket);
}

void Conductor::release(BucketId bucket) {
  parameters_pending_[bucket].fetch_sub(1, std::memory_order_release);
  gradients_busy_[bucket].fetch_sub(1, std::memory_order_release);
  pending_buckets_.fetch_sub(1, std::memory_order_release);
  unsettled_.fetch_sub(2, std::memory_order_release);
}

void Conductor::require_committed(BucketId bucket, const char* what) const {
  if (held_[bucket] <= iteration() || !updates_ahead(bucket)) return;
  throw ScheduleError(fmt::format(
      "rank {}: the {} of bucket {} are wanted between backward and step(), but policy {} changes "
      "them there: look at them after step(), or train with policy dear",
      options().rank, what, bucket, schedule_.policy()));
}

void Conductor::wait(Lock& lock, const Awaited& what, std::span<const StepId> steps,
                     const std::function<bool()>& condition) {
  const auto waited = GraphConductor::wait(lock, [&] { return what.text(); }, steps, condition);
  if (waited && options().record)
    waits_.push_back({what, iteration(), waited->begin_seconds, waited->end_seconds});
}

void Conductor::backward_done(LayerId layer) {
  const StepId step = schedule_.backward_of(layer);
  Lock held = lock();
  wait(held, Awaited{"the gradients of layer", layer}, {&step, 1}, [&] { return frontier().running(step); });
  complete(step);
  issue(held);
}

void Conductor::commit() {
  {
    Lock held = lock();
    // Layers that this pass did not use may still wait for the last iteration's gathers.
    for (LayerId layer = 0; layer < schedule_.layer_count(); ++layer) {
      const StepId forward = schedule_.forward_of(layer);
      const StepId backward = schedule_.backward_of(layer);
      wait(held, Awaited{"the parameters of layer", layer}, {&forward, 1},
           [&] { return frontier().running(forward); });
      wait(held, Awaited{"the gradients of layer", layer}, {&backward, 1},
           [&] { return frontier().running(backward) || frontier().done(backward) > iteration(); });
    }
    for (BucketId bucket = 0; bucket < schedule_.bucket_count(); ++bucket) {
      if (held_[bucket] > iteration()) {
        release(bucket);
      } else {
        held_[bucket] = iteration() + 1;
        expect_steps(bucket);
      }
    }
    for (LayerId layer = 0; layer < schedule_.layer_count(); ++layer) complete(schedule_.forward_of(layer));
    // In the order of the backward pass, so that flushed buckets are released in the order of their lane.
    for (auto layer = static_cast<LayerId>(schedule_.layer_count()); layer-- > 0;) {
      const StepId backward = schedule_.backward_of(layer);
      if (frontier().done(backward) <= iteration()) complete(backward);
    }
    complete(schedule_.commit());
    iteration_.fetch_add(1, std::memory_order_relaxed);
    issue(held);
  }
  for (const StepId step : inline_updates_) {
    const auto& update = std::get<Update>(schedule_.steps()[step].work);
    {
      Lock held = lock();
      wait(held, Awaited{"the reduced gradients of bucket", update.bucket}, {&step, 1},
           [&] { return frontier().running(step); });
    }
    const double begin = now_seconds();
    try {
      inline_update_(update);
    } catch (...) {
      keep_failure(std::current_exception());
      throw;
    }
    done(step, begin, now_seconds());
  }
  throw_if_failed();
}

bool Conductor::changes_now(BucketId bucket) const {
  const Lock held = lock();
  return updates_ahead(bucket) && held_[bucket] > iteration();
}

void Conductor::wait_parameters(BucketId bucket, Before commit) {
  Lock held = lock();
  if (commit == Before::refuse) require_committed(bucket, "parameters");
  wait(held, Awaited{"the parameters of bucket", bucket}, schedule_.publishers_of(bucket),
       [&] { return parameters_whole(bucket); });
}

void Conductor::wait_gradients(BucketId bucket, Before commit) {
  Lock held = lock();
  if (commit == Before::refuse) require_committed(bucket, "gradients");
  wait(held, Awaited{"the gradients of bucket", bucket}, schedule_.updates_of(bucket),
       [&] { return gradients_free(bucket); });
}

void Conductor::quiesce() {
  Lock held = lock();
  const StepId commit = schedule_.commit();
  wait(held, Awaited{"what is at work in iteration", static_cast<std::uint32_t>(iteration())}, {&commit, 1},
       [&] { return quiet(); });
}

std::vector<StepId> Conductor::reductions_to_come() const {
  const Lock held = lock();
  std::vector<StepId> steps = schedule_.steps_on(LaneKind::network);
  std::erase_if(steps,
                [&](StepId step) { return !reads_gradients_[step] || frontier().done(step) > iteration(); });
  return steps;
}

void Conductor::wait_decision() {
  const std::optional<StepId> step = schedule_.decision();
  if (!step) return;
  Lock held = lock();
  const std::int64_t committed = iteration();
  wait(held, Awaited{"rank 0's decision in iteration", static_cast<std::uint32_t>(committed - 1)},
       {&*step, 1}, [&] { return frontier().done(*step) >= committed; });
}

void Conductor::synchronize() {
  for (BucketId bucket = 0; bucket < schedule_.bucket_count(); ++bucket) {
    wait_parameters(bucket);
    wait_gradients(bucket);
  }
}

Conductor::Record Conductor::record() const {
  const Lock held = lock();
  return {recorded(), waits_};
}

}  // namespace dear::conductor
