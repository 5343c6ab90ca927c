#include "dear/train/checkpoint/stop_on_signal.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/os/interruption.h"
#include "dear/base/os/start_thread.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"

namespace dear {
namespace {

// A handler of signals has no argument of ours.
std::atomic<int> has_come{0};
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) { has_come = signal; }

// The handler of this process, while somebody uses it: ranks that are threads share it.
struct Handler {
  std::mutex mutex;
  int users = 0, signal = 0, also = 0;
  struct sigaction before{}, also_before{};
};
Handler& handler() {
  static Handler one;
  return one;
}

void install(int signal, int also) {
  Handler& mine = handler();
  const std::lock_guard lock(mine.mutex);
  if (mine.users > 0 && (mine.signal != signal || mine.also != also))
    throw ConfigError(fmt::format(
        "a StopOnSignal of this process waits for signal {} already, so it cannot wait for {}: use one",
        mine.signal, signal));
  if (mine.users++ > 0) return;
  has_come = 0;
  mine.signal = signal;
  mine.also = also;
  struct sigaction ours{};
  ours.sa_handler = note;
  ours.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigemptyset(&ours.sa_mask);
  ::sigaction(signal, &ours, &mine.before);
  if (also != 0) ::sigaction(also, &ours, &mine.also_before);
}

void uninstall() {
  Handler& mine = handler();
  const std::lock_guard lock(mine.mutex);
  if (--mine.users > 0) return;
  ::sigaction(mine.signal, &mine.before, nullptr);
  if (mine.also != 0) ::sigaction(mine.also, &mine.also_before, nullptr);
}

}  // namespace

StopOnSignal::StopOnSignal(const Group& group, Options options)
    : group_(group.duplicate()), options_(std::move(options)) {
  install(options_.signal, options_.also);
  if (group_.size() == 1) return;
  try {
    thread_ = os::start_thread("that asks for signals", [this] { exchange(); });
  } catch (...) {
    uninstall();
    throw;
  }
}

StopOnSignal::~StopOnSignal() {
  if (thread_.joinable() && ::getpid() != process_) {
    thread_.detach();  // a child that was forked has this object, but not its thread
  } else if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      leaves_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  uninstall();
}

int StopOnSignal::own_signal() const {
  if (const int came = has_come; came != 0) return came;
  const bool there = asked_ || (!options_.file.empty() && ::access(options_.file.c_str(), F_OK) == 0);
  return there ? options_.signal : 0;
}

void StopOnSignal::exchange() {
  struct News {
    int signal = 0;
    bool leaves = false;
  };
  try {
    for (;;) {
      News mine;
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, options_.interval, [this] { return leaves_; });
        mine.leaves = leaves_;
      }
      mine.signal = own_signal();
      bool over = false;
      for (const News& one : comm::all_gather_values(group_, mine)) {
        heard_ = std::max(heard_.load(), one.signal);
        over = over || one.leaves;
      }
      if (heard_ != 0) return agree_on_the_step(heard_);
      if (over) return;
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    held_ = false;
    changed_.notify_all();
  }
}

void StopOnSignal::agree_on_the_step(int signal) {
  std::int64_t calls = 0;
  {
    const std::lock_guard lock(mutex_);
    held_ = true;
    calls = calls_;
  }
  const std::vector<std::int64_t> all = comm::all_gather_values(group_, calls);
  const std::lock_guard lock(mutex_);
  last_ = *std::max_element(all.begin(), all.end()) + 1;
  stopped_ = signal;
  held_ = false;
  changed_.notify_all();
}

bool StopOnSignal::requested() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, os::kInterruptionInterval, [this] { return !held_; })) {
    lock.unlock();
    os::check_interruption();
    lock.lock();
  }
  if (failure_) std::rethrow_exception(failure_);
  ++calls_;
  if (group_.size() == 1 && !last_ && own_signal() != 0) {
    stopped_ = own_signal();
    last_ = calls_;
  }
  return last_ && calls_ >= *last_;
}

}  // namespace dear
