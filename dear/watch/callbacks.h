#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
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

namespace watch {

// Callbacks in the order of their registration, added and removed while others run.
template <typename Entry>
class Callbacks {
 public:
  [[nodiscard]] bool any() const { return state_->any.load(std::memory_order_acquire); }

  RemovableHandle add(Entry entry) {
    auto added = std::make_shared<Entry>(std::move(entry));
    {
      const std::lock_guard lock(state_->running);
      state_->entries.push_back(added);
      state_->any = true;
    }
    return RemovableHandle([weak = std::weak_ptr(state_), added] {
      const std::shared_ptr<State> state = weak.lock();
      if (!state) return;
      const std::lock_guard lock(state->running);
      std::erase(state->entries, added);
      state->any = !state->entries.empty();
    });
  }

  // Calls `act` with each entry that is there when its turn comes.
  template <typename Act>
  void for_each(Act act) {
    const std::lock_guard lock(state_->running);
    const std::vector<std::shared_ptr<Entry>> entries = state_->entries;
    for (const std::shared_ptr<Entry>& entry : entries)
      if (std::find(state_->entries.begin(), state_->entries.end(), entry) != state_->entries.end())
        act(*entry);
  }

 private:
  struct State {
    std::recursive_mutex running;
    std::vector<std::shared_ptr<Entry>> entries;
    std::atomic<bool> any = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace watch
}  // namespace dear
