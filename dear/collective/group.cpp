#include "dear/collective/group.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/blocked_signals.h"
#include "dear/base/error.h"
#include "dear/base/prompt_thread.h"

namespace dear {

struct Ticket {
  const void* lane = nullptr;  // whose thread will finish it
  std::mutex mutex;
  std::condition_variable finished;
  std::atomic<bool> done = false;
  Outcome outcome;  // written before `done`, never after

  void finish(Outcome result) {
    {
      const std::lock_guard lock(mutex);
      outcome = std::move(result);
      done.store(true, std::memory_order_release);
    }
    finished.notify_all();
  }
};

namespace {

// What runs on this thread, if it is the thread of a group: waiting for that group here could never end.
thread_local const void* lane_of_this_thread = nullptr;

void forbid_on_lane(const void* lane) {
  if (lane != nullptr && lane == lane_of_this_thread) {
    throw ConfigError(
        "a continuation waits for its own group, whose thread it holds: wait on another thread, or issue and "
        "return");
  }
}

Timing wait_for(Ticket& ticket) {
  if (!ticket.done.load(std::memory_order_acquire)) {
    forbid_on_lane(ticket.lane);
    std::unique_lock lock(ticket.mutex);
    ticket.finished.wait(lock, [&] { return ticket.done.load(std::memory_order_relaxed); });
  }
  if (ticket.outcome.error) {
    std::rethrow_exception(ticket.outcome.error);
  }
  return ticket.outcome.timing;
}

// A thread that takes no signals.
template <typename Function>
std::thread quiet_thread(Function&& function) {
  const BlockedSignals blocked;
  try {
    std::thread thread(std::forward<Function>(function));
    pthread_setname_np(thread.native_handle(), "dear-group");
    return thread;
  } catch (const std::system_error& error) {
    throw TransportError(fmt::format("cannot start the thread of a group: {}", error.what()));
  }
}

}  // namespace

bool Pending::done() const { return !ticket_ || ticket_->done.load(std::memory_order_acquire); }

Timing Pending::wait() const { return ticket_ ? wait_for(*ticket_) : Timing{}; }

// [Note: the lane] One thread runs what is issued, in that order. Its state is shared between the handles'
// Lane and the thread, so that the last handle may be dropped anywhere, even in a continuation on the thread
// itself: then the thread finishes the queue alone. Dropped elsewhere, the Lane waits for the queue; every
// item is bounded by the timeout, and after the first failure the rest end at once, so this waits for one
// timeout at most beyond the work.
class Group::Lane {
 public:
  using Work = std::function<Timing(Backend&, Deadline)>;

  Lane(std::unique_ptr<Backend> backend, const Options& options)
      : options(options), state_(std::make_shared<State>(std::move(backend), options.timeout)) {
    thread_ = quiet_thread([state = state_] {
      make_this_thread_prompt();
      std::thread deliveries;
      if (state->delivers_later) {
        deliveries = std::thread([state] {
          make_this_thread_prompt();
          state->deliver_when_due();
        });
      }
      state->run();
      if (deliveries.joinable()) deliveries.join();
    });
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() {
    state_->close();
    // A child that was forked has this object, but not the thread.
    if (lane_of_this_thread == state_.get() || getpid() != process_) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }

  std::shared_ptr<Ticket> push(Work work, Continuation then) {
    return state_->push(std::move(work), std::move(then));
  }
  // False when other work is there, or results are delivered by the other thread.
  bool perform_here(const Request& request) { return state_->perform_here(request); }
  void abort(const std::string& reason) noexcept { state_->abort(reason); }
  [[nodiscard]] const Backend& backend() const { return *state_->backend; }
  void forbid_here() const { forbid_on_lane(state_.get()); }

  const Options options;

 private:
  struct Item {
    Work work;
    Continuation then;
    std::shared_ptr<Ticket> ticket;
  };

  struct State {
    State(std::unique_ptr<Backend> with, std::chrono::duration<double> timeout)
        : backend(std::move(with)),
          timeout(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout)),
          delivers_later(!backend->modelled_network().empty()) {}

    std::shared_ptr<Ticket> push(Work work, Continuation then);
    void abort(const std::string& reason) noexcept;
    void close();
    void run();
    void deliver_when_due();
    bool perform_here(const Request& request);
    Outcome perform(const Work& work, SteadyTime reached);  // unless the group has failed
    template <typename Doing>
    Outcome attempt(const Doing& work, SteadyTime reached);
    void deliver(Item& item, Outcome outcome);
    void fail(std::exception_ptr error);
    std::exception_ptr failed();

    const std::unique_ptr<Backend> backend;
    const std::chrono::nanoseconds timeout;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Item> queue;
    std::exception_ptr failure;  // the first; ends the group
    bool closed = false;

    // A collective that nobody issued takes the turn without the lock above: it is short.
    std::mutex turn;                  // held by the thread that runs a collective
    std::atomic<int> unfinished = 0;  // of those issued
    std::atomic<bool> failing = false;

    // [Note: deliveries] On a modelled network a collective is done before its time has come. A thread of its
    // own delivers outcomes when they are due, in order, while the first goes on with the next collective: so
    // the link is as busy as it would be, however late this host's threads run.
    const bool delivers_later;
    std::deque<std::pair<Item, Outcome>> due;
    std::condition_variable due_changed;
    bool last_is_due = false;
  };

  std::shared_ptr<State> state_;
  std::thread thread_;
  const pid_t process_ = getpid();
};

std::shared_ptr<Ticket> Group::Lane::State::push(Work work, Continuation then) {
  auto ticket = std::make_shared<Ticket>();
  ticket->lane = this;
  {
    const std::lock_guard lock(mutex);
    if (failure) {
      std::rethrow_exception(failure);
    }
    queue.push_back({std::move(work), std::move(then), ticket});
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

void Group::Lane::State::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex);
  if (!failure) {
    failure = std::move(error);
    failing = true;
  }
}

std::exception_ptr Group::Lane::State::failed() {
  const std::lock_guard lock(mutex);
  return failure;
}

void Group::Lane::State::abort(const std::string& reason) noexcept {
  fail(std::make_exception_ptr(TransportError(fmt::format("rank {} failed: {}", backend->rank(), reason))));
  backend->abort(reason);
}

Outcome Group::Lane::State::perform(const Work& work, SteadyTime reached) {
  if (std::exception_ptr error = failed()) {
    return {.error = std::move(error)};
  }
  return attempt(work, reached);
}

template <typename Doing>
Outcome Group::Lane::State::attempt(const Doing& work, SteadyTime reached) {
  Outcome outcome;
  try {
    outcome.timing = work(*backend, Deadline(reached + timeout));
  } catch (...) {
    fail(std::current_exception());
    outcome.error = failed();  // an abort on this rank came first and says more than its consequence
  }
  return outcome;
}

void Group::Lane::State::deliver(Item& item, Outcome outcome) {
  if (item.then) {
    try {
      item.then(outcome);
    } catch (const std::exception& error) {
      fail(std::current_exception());
      backend->abort(fmt::format("a continuation threw: {}", error.what()));
      outcome.error = failed();
    }
  }
  // Buffers and captures go before the handle is done: who waited may count on it.
  item.work = nullptr;
  item.then = nullptr;
  item.ticket->finish(std::move(outcome));
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
    Outcome outcome;
    {
      const std::lock_guard mine(turn);
      outcome = perform(item.work, SteadyClock::now());
    }
    if (!delivers_later) {
      deliver(item, std::move(outcome));
      --unfinished;
      continue;
    }
    const std::lock_guard lock(mutex);
    due.emplace_back(std::move(item), std::move(outcome));
    due_changed.notify_one();
  }
}

bool Group::Lane::State::perform_here(const Request& request) {
  if (failing) {
    std::rethrow_exception(failed());
  }
  std::unique_lock mine(turn, std::defer_lock);
  if (delivers_later || unfinished > 0 || !mine.try_lock() || unfinished > 0) {
    return false;
  }
  // The time is a recent one, and nothing is to end too early.
  const auto run_it = [&](Backend& with, Deadline deadline) { return with.run(request, deadline); };
  const Outcome outcome = attempt(run_it, request.asked + kTick);
  if (outcome.error) {
    std::rethrow_exception(outcome.error);
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
    auto [item, outcome] = std::move(due.front());
    due.pop_front();
    lock.unlock();
    if (!outcome.error) std::this_thread::sleep_until(outcome.timing.end);
    deliver(item, std::move(outcome));
  }
}

Group::Group(std::unique_ptr<Backend> backend, Options options) {
  const double seconds = options.timeout.count();
  constexpr double kYear = 365.0 * 24 * 3600;
  if (!(seconds > 0 && seconds <= kYear)) {
    throw ConfigError(fmt::format("a timeout of {} s cannot be: give one above 0 and up to a year", seconds));
  }
  lane_ = std::make_shared<Lane>(std::move(backend), options);
}

int Group::rank() const { return lane_->backend().rank(); }
int Group::size() const { return lane_->backend().size(); }
std::string Group::description() const { return lane_->backend().description(); }
std::string Group::modelled_network() const { return lane_->backend().modelled_network(); }
bool Group::shares_memory() const { return lane_->backend().shares_memory(); }
std::chrono::duration<double> Group::timeout() const { return lane_->options.timeout; }

Buffer Group::allocate(std::int64_t bytes) { return allocate_with(&Backend::allocate, bytes); }
Buffer Group::allocate_shared(std::int64_t bytes) {
  if (!shares_memory()) lane_->backend().refuse_to_share();
  return allocate_with(&Backend::allocate_shared, bytes);
}

Buffer Group::allocate_with(Allocate allocate, std::int64_t bytes) {
  if (bytes < 0) {
    throw ConfigError(fmt::format("cannot allocate a buffer of {} bytes: the size is negative", bytes));
  }
  lane_->forbid_here();
  const auto buffer = std::make_shared<Buffer>();
  const auto ticket = lane_->push(
      [allocate, bytes, buffer](Backend& backend, Deadline deadline) {
        *buffer = (backend.*allocate)(bytes, deadline);
        return Timing{};
      },
      {});
  wait_for(*ticket);
  return *buffer;
}

Pending Group::issue(const Request& request, Continuation then) {
  validate(request, size());
  Request timed = request;
  timed.asked = SteadyClock::now();
  return Pending(
      lane_->push([timed](Backend& backend, Deadline deadline) { return backend.run(timed, deadline); },
                  std::move(then)));
}

void Group::perform(Request request) {
  validate(request, size());
  lane_->forbid_here();
  request.asked = recent_time();
  request.waiting = Waiting::yielding;
  request.timed = false;
  if (lane_->perform_here(request)) return;
  request.waiting = Waiting::asleep;
  request.timed = true;
  issue(request).wait();
}

Pending Group::reduce_scatter(const View& view, Reduction reduction) {
  return issue({.operation = Operation::reduce_scatter, .view = view, .reduction = reduction});
}
Pending Group::all_gather(const View& view) {
  return issue({.operation = Operation::all_gather, .view = view});
}
Pending Group::all_reduce(const View& view, Reduction reduction) {
  return issue({.operation = Operation::all_reduce, .view = view, .reduction = reduction});
}
Pending Group::broadcast(const View& view, int root) {
  return issue({.operation = Operation::broadcast, .view = view, .root = root});
}
Pending Group::all_to_all(const View& view, const View& output) {
  return issue({.operation = Operation::all_to_all, .view = view, .output = output});
}
Pending Group::barrier() { return issue({.operation = Operation::barrier}); }

void Group::abort(const std::string& reason) noexcept { lane_->abort(reason); }

}  // namespace dear
