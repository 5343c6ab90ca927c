#include "dear/schedule/conductor/graph_conductor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::conductor {
namespace {

GraphConductor::Options with_names(GraphConductor::Options options) {
  if (!options.name) options.name = [](StepId step) { return fmt::format("step {}", step); };
  return options;
}

}  // namespace

// No lane's order binds the frontier: the program keeps that of its own lanes, and issue() that of the
// others, where a step may start before the one before it has ended.
GraphConductor::GraphConductor(const Graph& graph, const std::vector<LaneId>& issued, Start start,
                               Options options)
    : is_issued_(graph.step_count()),
      start_(std::move(start)),
      options_(with_names(std::move(options))),
      frontier_(graph, {.free = FreeLaneSet(graph.lane_count(), true)}),
      last_progress_(SteadyClock::now()),
      given_(graph.step_count()) {
  if (const std::string flaw = flaw_of(graph, options_.name); !flaw.empty())
    throw ScheduleError(fmt::format("rank {}: this graph cannot run: {}", options_.rank, flaw));
  for (StepId step = 0; step < graph.step_count(); ++step) rhythms_.push_back(graph.rhythm_of(step));
  for (const LaneId lane : issued) {
    issued_.push_back({graph.steps_of(lane)});
    for (const StepId step : graph.steps_of(lane)) is_issued_[step] = true;
  }
  released_ = frontier_.start();
  const Lock lock(mutex_);
  issue();
}

void GraphConductor::issue() {
  for (IssuedLane& lane : issued_) issue(lane);
}

// The frontier moves under the lock, so steps start in the same order on every rank.
void GraphConductor::issue(IssuedLane& lane) {
  if (lane.steps.empty()) return;
  while (!failure_) {
    const StepId step = lane.steps[lane.next];
    if (given_[step] == frontier_.started(step)) return;  // not released yet
    lane.next = (lane.next + 1) % lane.steps.size();
    const Instance which{step, given_[step]++};
    if (rhythms_[step].rests_in(which.iteration)) continue;
    ++at_work_;
    try {
      start_(which);
    } catch (...) {
      --at_work_;
      failure_ = std::current_exception();
    }
  }
}

void GraphConductor::finish(const StepSpan& span) {
  if (options_.record) spans_.push_back(span);
  released_.clear();
  frontier_.complete(span.which.step, released_);
  last_progress_ = SteadyClock::now();
  issue();
  progress_.notify_all();
}

template <typename Condition>
void GraphConductor::wait(Lock& lock, StepId step, Condition condition) {
  if (failure_) std::rethrow_exception(failure_);
  if (condition()) return;
  const std::int64_t iteration = frontier_.done(step);
  const double begin = now_seconds();
  // A step that was started bounds itself, and can name the rank at fault: it reports first.
  const auto patience = std::chrono::duration_cast<SteadyClock::duration>(options_.timeout * 2);
  const SteadyTime entered = SteadyClock::now();
  for (;;) {
    const SteadyTime until = std::max(last_progress_, entered) + patience;
    const bool moved = progress_.wait_until(lock, until) == std::cv_status::no_timeout;
    if (failure_) std::rethrow_exception(failure_);
    if (condition()) break;
    if (!moved && SteadyClock::now() >= std::max(last_progress_, entered) + patience) throw_timeout(step);
  }
  const double end = now_seconds();
  waited_seconds_ = waited_seconds() + (end - begin);
  if (options_.record) waits_.push_back({{step, iteration}, begin, end});
}

void GraphConductor::throw_timeout(StepId step) const {
  throw TimeoutError(
      fmt::format("rank {}: waited {:.3g} s for '{}' of iteration {}, and nothing moved. Is a peer stuck? A "
                  "longer timeout helps only if it is merely slow.",
                  options_.rank, 2 * options_.timeout.count(), options_.name(step), frontier_.done(step)));
}

void GraphConductor::await(StepId step) {
  Lock lock(mutex_);
  wait(lock, step, [&] { return frontier_.running(step); });
}

void GraphConductor::await_done(StepId step, std::int64_t iteration) {
  Lock lock(mutex_);
  wait(lock, step, [&] { return frontier_.done(step) > iteration; });
}

void GraphConductor::done(StepId step) {
  const double now = now_seconds();
  done(step, now, now);
}

void GraphConductor::done(StepId step, double begin_seconds, double end_seconds) {
  const Lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (is_issued_[step])
    throw ScheduleError(
        fmt::format("rank {}: '{}' is not the program's to report", options_.rank, options_.name(step)));
  finish({{step, frontier_.done(step)}, begin_seconds, end_seconds});
  if (failure_) std::rethrow_exception(failure_);
}

void GraphConductor::run(StepId step, const std::function<void()>& work) {
  await(step);
  const double begin = now_seconds();
  work();
  done(step, begin, now_seconds());
}

// Notifies under the lock: as soon as it is released, drain() may return and this object be destroyed.
void GraphConductor::ended(const StepEnd& end) {
  const Lock lock(mutex_);
  --at_work_;
  progress_.notify_all();
  if (failure_) return;
  if (end.error) {
    failure_ = end.error;
    return;
  }
  try {
    finish(end.span);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void GraphConductor::throw_if_failed() const {
  const Lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void GraphConductor::drain() noexcept {
  Lock lock(mutex_);
  if (!failure_) failure_ = std::make_exception_ptr(ScheduleError("this run was ended"));
  progress_.wait(lock, [this] { return at_work_ == 0; });
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
