#include "dear/train/checkpoint/patience.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "dear/base/os/bytes_written.h"
#include "dear/base/os/start_thread.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/group/exchange.h"

namespace dear::checkpoint {
namespace {

class Work {
 public:
  explicit Work(const Group& group) : group_(group) {}

  void end() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
  }
  // Until all ranks are done.
  void tell_others() noexcept {
    try {
      while (!all_done(now())) {
      }
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }

 private:
  struct News {
    double silent_seconds = 0;  // without a byte that was written
    bool done = false;
  };

  News now() {
    bool done = false;
    {
      std::unique_lock lock(mutex_);
      done = changed_.wait_for(lock, group_.timeout() / 4, [this] { return done_; });
    }
    if (const std::int64_t bytes = os::bytes_written(); bytes != bytes_) {
      bytes_ = bytes;
      moved_ = SteadyClock::now();
    }
    return {.silent_seconds = done ? 0 : std::chrono::duration<double>(SteadyClock::now() - moved_).count(),
            .done = done};
  }

  [[nodiscard]] bool all_done(const News& mine) const {
    const auto all = comm::all_gather_values(group_, mine);
    bool every = true;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      every = every && all[rank].done;
      if (all[rank].silent_seconds > kTimeoutsWithoutAByte * group_.timeout().count())
        throw TimeoutError(fmt::format(
            "rank {} has written nothing for {} while it saves or loads: see whether its disk answers", rank,
            format_seconds(all[rank].silent_seconds)));
    }
    return every;
  }

  const Group& group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::int64_t bytes_ = os::bytes_written();
  SteadyTime moved_ = SteadyClock::now();
  std::exception_ptr error_;
};

}  // namespace

void patiently(const Group& group, const std::function<void()>& act) {
  if (group.size() == 1) return act();
  Work work(group);
  std::thread beside;
  try {
    beside = os::start_thread("that tells other ranks of a save", [&work] { work.tell_others(); });
  } catch (const TransportError&) {  // too few threads: others wait for this rank as for any
  }
  std::exception_ptr error;
  try {
    act();
  } catch (...) {
    error = std::current_exception();
  }
  work.end();
  beside.joinable() ? beside.join() : work.tell_others();
  if (error) std::rethrow_exception(error);
  if (work.error()) std::rethrow_exception(work.error());
}

}  // namespace dear::checkpoint
