#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "dear/base/liveness/liveness.h"
#include "dear/comm/group/group.h"

// The thread of a group.
namespace dear {

struct Ticket {
  const void* lane = nullptr;  // whose thread will finish it
  std::mutex mutex;
  std::condition_variable finished;
  std::atomic<bool> done = false;
  CollectiveResult result;  // written before `done`, never after

  void finish(CollectiveResult ended) {
    {
      const std::lock_guard lock(mutex);
      result = std::move(ended);
      done.store(true, std::memory_order_release);
    }
    finished.notify_all();
  }
};

// Returns when the ticket is done, or throws what its collective failed with.
Timing wait_for(Ticket& ticket);

// [Note: the lane] One thread runs what is issued, in that order. Its state is shared between the handles'
// Lane and the thread, so that the last handle may be dropped anywhere, even in a continuation on the thread
// itself: then the thread finishes the queue alone. Dropped elsewhere, the Lane waits for the queue; every
// item is bounded by the timeout, and after the first failure the rest end at once, so this waits for one
// timeout at most beyond the work.
//
// [Note: the end of the process] A program may keep a group in a global variable, or call exit() with one in
// a local. So every group still there ends in a handler of exit() that is registered after its backend was
// made: that runs before MPI ends, before the statics of loaded modules go, and before globals that were
// there before main() are destroyed. Peers learn that this rank left; what is asked of the group afterwards
// is an error.
class Group::Lane {
 public:
  using Task = std::function<Timing(Backend&, Deadline)>;

  Lane(std::unique_ptr<Backend> backend, const Options& options);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  std::shared_ptr<Ticket> push(Task task, Continuation then) {
    return state_->push(std::move(task), std::move(then));
  }
  // False when other work is there, or results are delivered by the other thread.
  bool perform_here(const Request& request) { return state_->perform_here(request); }
  void abort(const std::string& reason) noexcept { state_->abort(reason); }
  [[nodiscard]] const Backend& backend() const {
    if (state_->over) State::refuse(rank);
    return *state_->backend;
  }
  void forbid_here() const;  // ConfigError on the thread itself
  void watch(const std::shared_ptr<liveness::Liveness>& liveness) { State::watch(state_, liveness, true); }
  // A lane for a part of this group, which fails when this one does.
  std::shared_ptr<Lane> lane_of_part(std::unique_ptr<Backend> part) const;

  const Options options;
  const int rank, size;
  // The last number that this rank gave to a group made from the first one or its parts.
  std::shared_ptr<std::atomic<int>> groups = std::make_shared<std::atomic<int>>(0);
  std::atomic<bool> claimed = false;

 private:
  struct Living;  // groups of this process
  static Living& living();
  static void end_all();
  static void abort_all(const std::string& reason) noexcept;
  void end();

  struct Item {
    Task task;
    Continuation then;
    std::shared_ptr<Ticket> ticket;
  };

  struct State {
    State(std::unique_ptr<Backend> with, std::chrono::duration<double> timeout)
        : backend(std::move(with)),
          name(backend->name()),
          timeout(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout)),
          delivers_later(!backend->modelled_network().empty()) {}

    std::shared_ptr<Ticket> push(Task task, Continuation then);
    void abort(const std::string& reason) noexcept;
    void close();
    void run();
    void deliver_when_due();
    bool perform_here(const Request& request);
    void refuse_more();  // the process ends
    void end_backend();  // when nothing is at work any more
    [[noreturn]] static void refuse(int rank);
    CollectiveResult perform(const Task& task, SteadyTime reached);  // unless the group has failed
    template <typename Doing>
    CollectiveResult attempt(const Doing& task, SteadyTime reached);
    void deliver(Item& item, CollectiveResult result);
    void fail(std::exception_ptr error);
    void note_failure(const std::exception_ptr& error) const;
    void fail_with(std::exception_ptr error) noexcept;  // that of the group that this one is a part of
    void add_part(const std::shared_ptr<State>& part);
    std::exception_ptr failed();
    static void watch(const std::shared_ptr<State>& state, const std::shared_ptr<liveness::Liveness>& with,
                      bool is_whole);
    std::shared_ptr<liveness::Liveness> watched();
    void tell(const std::string& failure) noexcept;
    std::exception_ptr explained(std::exception_ptr error);  // what all ranks throw in its place

    std::unique_ptr<Backend> backend;
    const int name;                  // of this rank, in messages
    std::atomic<bool> over = false;  // the process ends: there is no backend any more
    const std::chrono::nanoseconds timeout;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Item> queue;
    std::exception_ptr failure;  // the first; ends the group
    std::vector<std::weak_ptr<State>> parts;
    bool closed = false;
    std::mutex ending;                             // held while the backend is told of a failure, or ends
    std::shared_ptr<liveness::Liveness> liveness;  // goes before the backend does
    bool is_whole = false;                         // a failure of this group is one of the job

    // A collective that nobody issued takes the turn without the lock above: it is short.
    std::mutex turn;                  // held by the thread that runs a collective
    std::atomic<int> unfinished = 0;  // of those issued
    std::atomic<bool> failing = false;

    // [Note: deliveries] On a modelled network a collective is done before its time has come. A thread of its
    // own delivers outcomes when they are due, in order, while the first goes on with the next collective: so
    // the link is as busy as it would be, however late this host's threads run.
    const bool delivers_later;
    std::deque<std::pair<Item, CollectiveResult>> due;
    std::condition_variable due_changed;
    bool last_is_due = false;
  };

  std::shared_ptr<State> state_;
  std::thread thread_, deliveries_;
  const pid_t process_ = getpid();
};

}  // namespace dear
