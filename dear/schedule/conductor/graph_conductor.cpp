#include "dear/schedule/conductor/graph_conductor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/interruption.h"
#include "dear/base/vocabulary/error.h"
#include "dear/schedule/conductor/unlocked.h"

namespace dear::conductor {
namespace {

GraphConductor::Options with_names(GraphConductor::Options options) {
  if (!options.name) options.name = [](StepId step) { return fmt::format("step {}", step); };
  return options;
}

}  // namespace

// No lane's order binds the frontier: the program keeps that of its own lanes, and take_next() that of the
// others, where a step may start before the one before it has ended.
GraphConductor::GraphConductor(const Graph& graph, const std::vector<LaneId>& issued, Start start,
                               Options options)
    : GraphConductor(graph, issued, std::move(start), std::move(options),
                     FreeLaneSet(graph.lane_count(), true)) {
  begin();
}

GraphConductor::GraphConductor(const Graph& graph, const std::vector<LaneId>& issued, Start start,
                               Options options, FreeLaneSet free)
    : is_issued_(graph.step_count()),
      start_(std::move(start)),
      options_(with_names(std::move(options))),
      frontier_(graph, {.free = std::move(free)}),
      last_progress_(SteadyClock::now()),
      given_(graph.step_count()) {
  if (const std::string flaw = flaw_of(graph, options_.name); !flaw.empty())
    throw ScheduleError(fmt::format("rank {}: this graph cannot run: {}", options_.rank, flaw));
  for (StepId step = 0; step < graph.step_count(); ++step) rhythms_.push_back(graph.rhythm_of(step));
  for (const LaneId lane : issued) {
    issued_.push_back({graph.steps_of(lane)});
    for (const StepId step : graph.steps_of(lane)) is_issued_[step] = true;
  }
}

void GraphConductor::begin() {
  Lock lock(mutex_);
  for (const Instance& which : frontier_.start()) on_released(which);
  start_all(lock);
}

// The next step to start, which counts as started from now on.
std::optional<Instance> GraphConductor::take_next() {
  for (IssuedLane& lane : issued_)
    while (!lane.steps.empty()) {
      const StepId step = lane.steps[lane.next];
      if (given_[step] == frontier_.started(step)) break;  // not released yet
      lane.next = (lane.next + 1) % lane.steps.size();
      const Instance which{step, given_[step]++};
      if (rhythms_[step].rests_in(which.iteration)) continue;
      on_start(step);
      ++at_work_;
      return which;
    }
  return std::nullopt;
}

void GraphConductor::start_all(Lock& lock) {
  if (issuing_) return;
  issuing_ = true;
  issuer_ = std::this_thread::get_id();
  while (!failure_) {
    const std::optional<Instance> next = take_next();
    if (!next) break;
    Started started = Started::done;
    std::exception_ptr error;
    {
      const Unlocked without(lock);
      try {
        started = start_(*next);
      } catch (...) {
        error = std::current_exception();
      }
    }
    if (error) fail(error);
    if (error || started == Started::done) --at_work_;
    if (started == Started::done && !failure_) complete(next->step);
  }
  issuing_ = false;
  progress_.notify_all();
}

void GraphConductor::issue(Lock& lock) {
  start_all(lock);
  if (issuing_ && issuer_ != std::this_thread::get_id()) progress_.wait(lock, [this] { return !issuing_; });
  throw_failure();
}

void GraphConductor::complete(StepId step) {
  released_.clear();
  frontier_.complete(step, released_);
  last_progress_ = SteadyClock::now();
  on_done(step);
  for (const Instance& which : released_) on_released(which);
}

// Notifies under the lock: as soon as it is released, drain() may return and this object be destroyed.
void GraphConductor::fail(std::exception_ptr error) {
  if (!failure_) failure_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  progress_.notify_all();
}

void GraphConductor::ended(const StepEnd& end) {
  Lock lock(mutex_);
  --at_work_;
  progress_.notify_all();
  if (failure_) return;
  const auto [step, iteration] = end.span.which;
  if (end.error) return fail(end.error);
  try {
    if (iteration != frontier_.done(step))
      throw ScheduleError(
          fmt::format("rank {}: {} ended in iteration {}, but iteration {} is the one to end next",
                      options_.rank, options_.name(step), iteration, frontier_.done(step)));
    complete(end.span);
    start_all(lock);
  } catch (...) {
    fail(std::current_exception());
  }
}

// Whoever runs a step bounds it by the same timeout, and can name the rank at fault. So this wait allows
// twice that time, and gives up only if the other did not.
std::optional<GraphConductor::Waited> GraphConductor::wait(Lock& lock,
                                                           const std::function<std::string()>& what,
                                                           std::span<const StepId> steps,
                                                           const std::function<bool()>& condition) {
  throw_failure();
  if (condition()) return std::nullopt;
  const double begin = now_seconds();
  const auto patience = std::chrono::duration_cast<SteadyClock::duration>(options_.timeout * 2);
  const SteadyTime entered = SteadyClock::now();
  for (;;) {
    const SteadyTime until = std::max(last_progress_, entered) + patience;
    const SteadyTime check = SteadyClock::now() + os::kInterruptionInterval;
    const bool moved = progress_.wait_until(lock, std::min(until, check)) == std::cv_status::no_timeout;
    throw_failure();
    if (condition()) break;
    if (SteadyClock::now() >= check) {
      {
        const Unlocked without(lock);
        os::check_interruption();
      }
      throw_failure();
      if (condition()) break;
    }
    if (moved || SteadyClock::now() < std::max(last_progress_, entered) + patience) continue;
    const StepId behind = *std::min_element(steps.begin(), steps.end(), [&](StepId a, StepId b) {
      return frontier_.done(a) < frontier_.done(b);
    });
    throw TimeoutError(fmt::format(
        "rank {}: waited {:.3g} s for {}, and nothing moved: '{}' of iteration {} has not ended. "
        "Is a peer stuck? A longer timeout helps only if it is merely slow.",
        options_.rank, 2 * options_.timeout.count(), what(), options_.name(behind), frontier_.done(behind)));
  }
  const Waited waited{begin, now_seconds()};
  waited_seconds_ = waited_seconds() + (waited.end_seconds - begin);
  wait_count_.fetch_add(1, std::memory_order_relaxed);
  return waited;
}

void GraphConductor::await(Lock& lock, StepId step, const std::function<bool()>& condition) {
  const std::int64_t iteration = frontier_.done(step);
  const auto waited =
      wait(lock, [&] { return fmt::format("'{}'", options_.name(step)); }, {&step, 1}, condition);
  if (waited && options_.record)
    waits_.push_back({{step, iteration}, waited->begin_seconds, waited->end_seconds});
}

void GraphConductor::await(StepId step) {
  Lock lock(mutex_);
  await(lock, step, [&] { return frontier_.running(step); });
}

void GraphConductor::await_done(StepId step, std::int64_t iteration) {
  Lock lock(mutex_);
  await(lock, step, [&] { return frontier_.done(step) > iteration; });
}

void GraphConductor::done(StepId step) {
  const double now = now_seconds();
  done(step, now, now);
}

void GraphConductor::done(StepId step, double begin_seconds, double end_seconds) {
  Lock lock(mutex_);
  throw_failure();
  if (is_issued_[step])
    throw ScheduleError(
        fmt::format("rank {}: '{}' is not the program's to report", options_.rank, options_.name(step)));
  complete({{step, frontier_.done(step)}, begin_seconds, end_seconds});
  issue(lock);
}

void GraphConductor::run(StepId step, const std::function<void()>& work) {
  await(step);
  const double begin = now_seconds();
  work();
  done(step, begin, now_seconds());
}

void GraphConductor::keep_failure(std::exception_ptr error) {
  const Lock lock(mutex_);
  fail(std::move(error));
}

std::exception_ptr GraphConductor::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return nullptr;
  const Lock lock(mutex_);
  return failure_;
}

void GraphConductor::throw_if_failed() const {
  if (auto error = failure()) std::rethrow_exception(error);
}

void GraphConductor::drain() noexcept {
  Lock lock(mutex_);
  if (!failure_) fail(std::make_exception_ptr(ScheduleError("this run was ended")));
  progress_.wait(lock, [this] { return quiet(); });
}

std::vector<StepSpan> GraphConductor::spans() const {
  const Lock lock(mutex_);
  return spans_;
}

std::vector<StepSpan> GraphConductor::waits() const {
  const Lock lock(mutex_);
  return waits_;
}

}  // namespace dear::conductor
