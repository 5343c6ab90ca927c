#include "dear/train/checkpoint/stop_on_signal.h"

#include <algorithm>
#include <mutex>

#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"

namespace dear {
namespace {

constexpr std::int64_t kMostCalls = 1'000'000;  // between two exchanges
// What exchanges may take of the time. The number of calls until the next one is fixed by the speed of the
// past, and steps may become slower: so there are no fewer exchanges than that allows.
constexpr double kShare = 0.01;

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

// A message from rank to rank; rank 0's says in how many calls they do so again.
struct News {
  std::int64_t stop = 0, calls = 1;  // the signal
};

}  // namespace

StopOnSignal::StopOnSignal(const Group& group, Options options)
    : group_(group.duplicate()), options_(options) {
  install(options_.signal, options_.also);
}

StopOnSignal::~StopOnSignal() { uninstall(); }

bool StopOnSignal::requested() {
  if (stopped_ != 0) return true;
  if (++calls_ < next_) return false;
  const double now = now_seconds();
  const double seconds = std::max((now - last_) / static_cast<double>(calls_), 1e-9);  // of a call
  const int came = has_come;
  const News mine{
      .stop = came != 0 ? came
              : asked_  ? options_.signal
                        : 0,
      .calls = last_ == 0 ? 1
                          : static_cast<std::int64_t>(
                                std::min(options_.interval.count(), exchange_seconds_ / kShare) / seconds)};
  const std::vector<News> all = comm::all_gather_values(group_, mine);
  exchange_seconds_ = last_ == 0 ? now_seconds() - now : std::min(exchange_seconds_, now_seconds() - now);
  for (const News& one : all) stopped_ = std::max(stopped_, static_cast<int>(one.stop));
  next_ = std::clamp<std::int64_t>(all.front().calls, 1, kMostCalls);
  calls_ = 0;
  last_ = now_seconds();
  return stopped_ != 0;
}

}  // namespace dear
