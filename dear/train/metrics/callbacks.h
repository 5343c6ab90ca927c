#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace dear {

// Removes a callback that was registered. A RemovableHandle that is dropped removes nothing, and it may live
// longer than what it was registered with.
class RemovableHandle {
 public:
  RemovableHandle() = default;
  explicit RemovableHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  // When it returns the callback is not running on another thread, and is not called again. From any thread,
  // also from within the callback.
  void remove() {
    if (const auto once = std::exchange(remove_, {})) once();
  }

 private:
  std::function<void()> remove_;
};

namespace metrics {

// Callbacks in the order of their registration, added and removed while others run. They run without a lock.
template <typename Entry>
class Callbacks {
 public:
  [[nodiscard]] bool any() const { return state_->any.load(std::memory_order_acquire); }

  RemovableHandle add(Entry entry) {
    auto added = std::make_shared<Registered>(std::move(entry));
    {
      const std::lock_guard lock(state_->mutex);
      state_->registered.push_back(added);
      state_->any = true;
    }
    return RemovableHandle([weak = std::weak_ptr(state_), added] {
      if (const std::shared_ptr<State> state = weak.lock()) state->remove(added);
    });
  }

  // Calls `act` with each entry that is there when its turn comes.
  template <typename Act>
  void for_each(Act act) {
    const std::shared_ptr<State> state = state_;
    std::vector<std::shared_ptr<Registered>> all;
    {
      const std::lock_guard lock(state->mutex);
      all = state->registered;
    }
    for (const std::shared_ptr<Registered>& one : all) {
      const Run run(*state, one);
      if (run.began()) act(one->entry);
    }
  }

 private:
  struct Registered {
    explicit Registered(Entry its) : entry(std::move(its)) {}
    Entry entry;
    std::vector<std::thread::id> runs_on;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable ended;
    std::vector<std::shared_ptr<Registered>> registered;
    std::atomic<bool> any = false;

    // Waits for other threads that run it, not for the caller's own.
    void remove(const std::shared_ptr<Registered>& one) {
      std::unique_lock lock(mutex);
      std::erase(registered, one);
      any = !registered.empty();
      ended.wait(lock, [&] {
        return std::all_of(one->runs_on.begin(), one->runs_on.end(),
                           [](std::thread::id id) { return id == std::this_thread::get_id(); });
      });
    }
  };
  class Run {
   public:
    Run(State& state, const std::shared_ptr<Registered>& one) : state_(state), one_(*one) {
      const std::lock_guard lock(state_.mutex);
      began_ = std::find(state_.registered.begin(), state_.registered.end(), one) != state_.registered.end();
      if (began_) one_.runs_on.push_back(std::this_thread::get_id());
    }
    ~Run() {
      if (!began_) return;
      const std::lock_guard lock(state_.mutex);
      one_.runs_on.erase(std::find(one_.runs_on.begin(), one_.runs_on.end(), std::this_thread::get_id()));
      state_.ended.notify_all();
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    [[nodiscard]] bool began() const { return began_; }

   private:
    State& state_;
    Registered& one_;
    bool began_ = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace metrics
}  // namespace dear
