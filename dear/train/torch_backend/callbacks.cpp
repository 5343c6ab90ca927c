#include "dear/train/torch_backend/callbacks.h"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <sys/prctl.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dear::torch_backend {

// Shared with the threads, since the last handle may be dropped on one of them.
struct Callbacks::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  std::size_t idle = 0;
  bool ending = false;
  std::vector<std::thread> threads;

  void run() {
    prctl(PR_SET_NAME, "dear-callbacks");
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      changed.wait(lock, [this] { return !jobs.empty() || ending; });
      --idle;
      if (jobs.empty()) return;
      std::function<void()> job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      job = {};
      lock.lock();
    }
  }
};

Callbacks::Callbacks() : state_(std::make_shared<State>()) {}

Callbacks::~Callbacks() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    threads = std::move(state_->threads);
    state_->changed.notify_all();
  }
  for (std::thread& thread : threads)
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
}

void Callbacks::post(std::function<void()> job) {
  std::unique_lock lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  if (state_->idle >= state_->jobs.size()) {
    state_->changed.notify_one();
    return;
  }
  try {
    state_->threads.emplace_back([state = state_] { state->run(); });
  } catch (const std::system_error&) {  // the system starts no more threads
    job = std::move(state_->jobs.back());
    state_->jobs.pop_back();
    lock.unlock();
    job();
  }
}

}  // namespace dear::torch_backend
