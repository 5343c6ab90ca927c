#include "dear/comm/group/group_lane.h"

#include <cstdlib>
#include <pthread.h>
#include <set>

#include <fmt/format.h>

#include "dear/base/os/interruption.h"
#include "dear/base/os/prompt_thread.h"
#include "dear/base/os/start_thread.h"
#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/endings.h"

namespace dear {
namespace {

// The ends of all groups, once there was one.
std::atomic<void (*)()> end_all_groups = nullptr;
std::atomic<void (*)(const std::string&) noexcept> abort_all_groups = nullptr;

// The lane of the group whose thread this is, if any: waiting for that group here could never end.
thread_local const void* lane_of_this_thread = nullptr;

void forbid_on_lane(const void* lane) {
  if (lane != nullptr && lane == lane_of_this_thread) {
    throw ConfigError(
        "a continuation waits for its own group, whose thread it holds: wait on another thread, or issue and "
        "return");
  }
}

std::thread start_group_thread(std::function<void()> body) {
  std::thread thread = os::start_thread("of a group", [body = std::move(body)] {
    os::make_this_thread_prompt();
    body();
  });
  pthread_setname_np(thread.native_handle(), "dear-group");
  return thread;
}

}  // namespace

void comm::abort_groups(const std::string& reason) noexcept {
  if (const auto abort = abort_all_groups.load()) abort(reason);
}

void comm::leave_groups() noexcept {
  try {
    if (const auto end = end_all_groups.load()) end();
  } catch (const std::exception&) {  // peers learn of the end of the process
  }
}

Timing wait_for(Ticket& ticket) {
  if (!ticket.done.load(std::memory_order_acquire)) {
    forbid_on_lane(ticket.lane);
    std::unique_lock lock(ticket.mutex);
    const auto done = [&] { return ticket.done.load(std::memory_order_relaxed); };
    while (!ticket.finished.wait_for(lock, os::kInterruptionInterval, done)) {
      lock.unlock();
      os::check_interruption();
      lock.lock();
    }
  }
  if (ticket.result.error) {
    std::rethrow_exception(ticket.result.error);
  }
  return ticket.result.timing;
}

struct Group::Lane::Living {
  std::mutex mutex;
  std::set<Lane*> lanes;
};

Group::Lane::Living& Group::Lane::living() {
  static auto* const kLiving = new Living;  // outlives everything
  return *kLiving;
}

// Ends the lanes one after another, since a lane that ends may destroy others.
void Group::Lane::end_all() {
  Living& all = living();
  for (;;) {
    Lane* lane = nullptr;
    {
      const std::lock_guard lock(all.mutex);
      if (all.lanes.empty()) return;
      lane = *all.lanes.begin();
      all.lanes.erase(all.lanes.begin());
    }
    if (getpid() != lane->process_) continue;  // a child that was forked leaves them to its parent
    lane->state_->refuse_more();
    lane->end();
    lane->state_->end_backend();
  }
}

// Keeps their states, for lanes may go meanwhile; their mutex is free while peers are told.
void Group::Lane::abort_all(const std::string& reason) noexcept {
  std::vector<std::shared_ptr<State>> states;
  {
    Living& all = living();
    const std::lock_guard lock(all.mutex);
    for (Lane* const lane : all.lanes)
      if (getpid() == lane->process_) states.push_back(lane->state_);
  }
  for (const auto& state : states) state->abort(reason);
}

void Group::Lane::end() {
  state_->close();
  for (std::thread* const thread : {&thread_, &deliveries_}) {
    if (!thread->joinable()) continue;
    // A child that was forked has this object, but not its thread.
    if (lane_of_this_thread == state_.get() || getpid() != process_) {
      thread->detach();
    } else {
      thread->join();
    }
  }
}

Group::Lane::Lane(std::unique_ptr<Backend> backend, const Options& options)
    : options(options),
      rank(backend->rank()),
      size(backend->size()),
      state_(std::make_shared<State>(std::move(backend), options.timeout)) {
  recorder::open(rank, size);
  state_->backend->recorded.group = recorder::next_group();
  thread_ = start_group_thread([state = state_] { state->run(); });
  if (state_->delivers_later) {
    try {
      deliveries_ = start_group_thread([state = state_] { state->deliver_when_due(); });
    } catch (...) {
      end();
      throw;
    }
  }
  Living& all = living();
  const std::lock_guard lock(all.mutex);
  all.lanes.insert(this);
  end_all_groups = end_all;
  abort_all_groups = abort_all;
  std::atexit(end_all);
}

Group::Lane::~Lane() {
  {
    Living& all = living();
    const std::lock_guard lock(all.mutex);
    all.lanes.erase(this);
  }
  if (thread_.joinable()) end();
}

void Group::Lane::forbid_here() const { forbid_on_lane(state_.get()); }

std::shared_ptr<Group::Lane> Group::Lane::lane_of_part(std::unique_ptr<Backend> part) const {
  auto lane = std::make_shared<Lane>(std::move(part), options);
  lane->groups = groups;
  if (const auto liveness = state_->watched()) State::watch(lane->state_, liveness, false);
  state_->add_part(lane->state_);
  return lane;
}

std::shared_ptr<Ticket> Group::Lane::State::push(Task task, Continuation then) {
  auto ticket = std::make_shared<Ticket>();
  ticket->lane = this;
  {
    const std::lock_guard lock(mutex);
    if (failure) {
      std::rethrow_exception(failure);
    }
    if (over) refuse(name);
    queue.push_back({std::move(task), std::move(then), ticket});
    ++unfinished;
  }
  changed.notify_one();
  return ticket;
}

void Group::Lane::State::close() {
  {
    const std::lock_guard lock(mutex);
    closed = true;
  }
  changed.notify_one();
}

void Group::Lane::State::refuse_more() {
  const std::lock_guard lock(mutex);
  over = true;
}

void Group::Lane::State::end_backend() {
  std::shared_ptr<liveness::Liveness> ended;
  {
    const std::lock_guard lock(mutex);
    ended.swap(liveness);
  }
  ended.reset();
  const std::lock_guard lock(ending);
  if (lane_of_this_thread != this) backend.reset();
}

void Group::Lane::State::refuse(int rank) {
  throw TransportError(fmt::format(
      "rank {}: the process is ending, and its groups have ended: be done with them before exit() or the "
      "end of main()",
      rank));
}

void Group::Lane::State::note_failure(const std::exception_ptr& error) const {
  if (!recorder::is_open()) return;
  // What the group throws is a consequence on all ranks but the one that it names as the first.
  const auto is_own = [this](const std::exception& one) {
    const bool of_group = dynamic_cast<const TransportError*>(&one) != nullptr ||
                          dynamic_cast<const TimeoutError*>(&one) != nullptr ||
                          dynamic_cast<const MismatchError*>(&one) != nullptr;
    return !of_group || std::string_view(one.what()).starts_with(fmt::format("rank {} failed: ", name));
  };
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& one) {
    recorder::note_failure(one.what(), is_own(one));
  } catch (...) {
    recorder::note_failure("an exception of an unknown type", true);
  }
}

void Group::Lane::State::fail(std::exception_ptr error) {
  std::vector<std::weak_ptr<State>> ended;
  {
    const std::lock_guard lock(mutex);
    if (failure) return;
    failure = error;
    failing = true;
    ended.swap(parts);
  }
  note_failure(error);
  for (const auto& one : ended) {
    if (const auto part = one.lock()) part->fail_with(error);
  }
}

void Group::Lane::State::fail_with(std::exception_ptr error) noexcept {
  fail(error);
  const std::lock_guard lock(ending);
  if (over) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& of_whole) {
    backend->abort(of_whole.what());
  }
}

void Group::Lane::State::add_part(const std::shared_ptr<State>& part) {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex);
    std::erase_if(parts, [](const auto& one) { return one.expired(); });
    parts.push_back(part);
    error = failure;
  }
  if (error) part->fail_with(error);
}

std::exception_ptr Group::Lane::State::failed() {
  const std::lock_guard lock(mutex);
  return failure;
}

void Group::Lane::State::abort(const std::string& reason) noexcept {
  tell(comm::failure_of(name, reason));
  fail(std::make_exception_ptr(TransportError(comm::failure_of(name, reason))));
  if (!over) backend->abort(reason);
}

CollectiveResult Group::Lane::State::perform(const Task& task, SteadyTime reached) {
  if (std::exception_ptr error = failed()) {
    return {.error = std::move(error)};
  }
  return attempt(task, reached);
}

template <typename Doing>
CollectiveResult Group::Lane::State::attempt(const Doing& task, SteadyTime reached) {
  CollectiveResult result;
  try {
    result.timing = task(*backend, Deadline(reached + timeout));
  } catch (...) {
    fail(explained(std::current_exception()));
    result.error = failed();  // an abort on this rank came first and says more than its consequence
  }
  return result;
}

void Group::Lane::State::deliver(Item& item, CollectiveResult result) {
  if (item.then) {
    try {
      item.then(result);
    } catch (const std::exception& error) {
      tell(comm::failure_of(name, fmt::format("a continuation threw: {}", error.what())));
      fail(std::current_exception());
      backend->abort(fmt::format("a continuation threw: {}", error.what()));
      result.error = failed();
    }
  }
  // The buffers and captures of a request go before its handle is done: a program that has waited may count
  // on it.
  item.task = nullptr;
  item.then = nullptr;
  item.ticket->finish(std::move(result));
}

void Group::Lane::State::run() {
  lane_of_this_thread = this;
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return closed || !queue.empty(); });
      if (queue.empty()) {
        last_is_due = true;
        due_changed.notify_one();
        return;
      }
      item = std::move(queue.front());
      queue.pop_front();
    }
    CollectiveResult result;
    {
      const std::lock_guard mine(turn);
      result = perform(item.task, SteadyClock::now());
    }
    if (!delivers_later) {
      deliver(item, std::move(result));
      --unfinished;
      continue;
    }
    const std::lock_guard lock(mutex);
    due.emplace_back(std::move(item), std::move(result));
    due_changed.notify_one();
  }
}

bool Group::Lane::State::perform_here(const Request& request) {
  if (failing) {
    std::rethrow_exception(failed());
  }
  if (over) refuse(name);
  std::unique_lock mine(turn, std::defer_lock);
  if (delivers_later || unfinished > 0 || !mine.try_lock() || unfinished > 0) {
    return false;
  }
  // The time is a recent one, and nothing is to end too early.
  const auto run_it = [&](Backend& with, Deadline deadline) {
    return run_with_own_shard(with, request, deadline);
  };
  const CollectiveResult result = attempt(run_it, request.asked + kTick);
  if (result.error) {
    std::rethrow_exception(result.error);
  }
  return true;
}

void Group::Lane::State::deliver_when_due() {
  lane_of_this_thread = this;
  for (;;) {
    std::unique_lock lock(mutex);
    due_changed.wait(lock, [this] { return last_is_due || !due.empty(); });
    if (due.empty()) {
      return;
    }
    auto [item, result] = std::move(due.front());
    due.pop_front();
    lock.unlock();
    if (!result.error) std::this_thread::sleep_until(result.timing.end);
    deliver(item, std::move(result));
  }
}

}  // namespace dear
