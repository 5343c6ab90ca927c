#include "dear/collective/shm/control.h"

#include <algorithm>
#include <cstring>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>
#include <utility>

#include <climits>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/base/units.h"

namespace dear::collective {

// [Note: the barrier] `word` counts completed barriers in steps of 2; its lowest bit says that the group
// failed. A rank that waits sleeps on the word as it was when the rank came, so neither completion nor
// failure can be missed. A completion counts before a failure: who got through a barrier is not concerned
// with what a peer met later.
struct Control::Board {
  alignas(64) std::atomic<std::uint32_t> word;
  alignas(64) std::atomic<std::uint32_t> arrived;  // ranks in the present barrier
  alignas(64) std::atomic<bool> failure_claimed;
  FailureKind kind;
  char message[2000];
};

struct Control::Place {
  // Barriers that the rank entered. Stored last on entering: a rank that is killed on its way in counts as
  // missing.
  alignas(128) std::atomic<std::uint64_t> phase;
  std::atomic<bool> left;
  Announcement announcements[2];
};

namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

constexpr std::uint32_t kFailed = 1;
constexpr std::uint32_t kStep = 2;
constexpr int kSpins = 200;
constexpr auto kFirstLook = std::chrono::milliseconds(5);
constexpr auto kNextLooks = std::chrono::milliseconds(50);

bool completed(std::uint32_t before, std::uint32_t now) { return ((before ^ now) & ~kFailed) != 0; }

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Not the private kind: the word is shared between processes. Returns early at will; the caller looks again.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (at_most - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Counted for the host: a rank that is bound to a processor of its own leaves the others theirs.
bool enough_processors_for(int ranks) { return get_nprocs() >= ranks; }

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

}  // namespace

std::int64_t Control::bytes_for(int ranks) {
  return round_up(sizeof(Board), 128) + ranks * static_cast<std::int64_t>(sizeof(Place));
}

Control::Control(std::shared_ptr<Segment> segment, Peers peers, int rank, int ranks)
    : segment_(std::move(segment)),
      peers_(std::move(peers)),
      rank_(rank),
      ranks_(ranks),
      board_(reinterpret_cast<Board*>(segment_->data())),
      may_spin_(enough_processors_for(ranks)),
      process_(getpid()) {}

void Control::leave() noexcept {
  // A child that was forked from this rank is not this rank.
  if (getpid() == process_) {
    place(rank_).left.store(true, std::memory_order_release);
    wake_all(board_->word);
  }
}

Control::Place& Control::place(int rank) const {
  auto* places = reinterpret_cast<Place*>(segment_->data() + round_up(sizeof(Board), 128));
  return places[rank];
}

Announcement& Control::announcement(int rank, std::uint64_t sequence) const {
  return place(rank).announcements[sequence % 2];
}

void Control::barrier(const Describe& what, Deadline deadline) {
  const std::uint32_t before = board_->word.load(std::memory_order_acquire);
  if ((before & kFailed) != 0) {
    throw_failure();
  }
  ++phase_;
  const bool last =
      board_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(ranks_);
  if (last) {
    board_->arrived.store(0, std::memory_order_relaxed);
    board_->word.fetch_add(kStep, std::memory_order_acq_rel);
    wake_all(board_->word);
  }
  place(rank_).phase.store(phase_, std::memory_order_release);
  if (!last) {
    wait(before, what, deadline);
  }
}

void Control::wait(std::uint32_t before, const Describe& what, Deadline deadline) {
  for (int spin = 0; may_spin_ && spin < kSpins; ++spin) {
    if (completed(before, board_->word.load(std::memory_order_acquire))) {
      return;
    }
    relax();
  }
  const SteadyTime since = SteadyClock::now();
  bool slept = false;
  for (;;) {
    const std::uint32_t now = board_->word.load(std::memory_order_acquire);
    if (completed(before, now)) {
      return;
    }
    if ((now & kFailed) != 0) {
      throw_failure();
    }
    if (slept) {
      const bool late = deadline.expired();
      const std::vector<int> absent = missing();
      // Whoever was absent may have come while we looked.
      if (completed(before, board_->word.load(std::memory_order_acquire))) {
        return;
      }
      fail_if_gone(absent, before, what);
      if (late && !absent.empty()) {
        fail_late(absent, before, what, since);
      }
    }
    const std::chrono::nanoseconds look = slept ? kNextLooks : kFirstLook;
    sleep_on(board_->word, now, std::min(look, deadline.remaining()));
    slept = true;
  }
}

std::vector<int> Control::missing() const {
  std::vector<int> absent;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_ && place(rank).phase.load(std::memory_order_acquire) < phase_) {
      absent.push_back(rank);
    }
  }
  return absent;
}

// A rank may come, get through and leave between two looks, so what it did is looked at before the word is.
void Control::fail_if_gone(const std::vector<int>& absent, std::uint32_t before, const Describe& what) {
  for (const int rank : absent) {
    const bool left = place(rank).left.load(std::memory_order_acquire);
    if (!left && !peers_.ended(rank)) {
      continue;
    }
    if (completed(before, board_->word.load(std::memory_order_acquire))) {
      return;
    }
    fail(FailureKind::transport,
         left ? fmt::format("{} left the group while others {}: every rank must issue the same collectives",
                            peers_.name(rank), what())
              : fmt::format("{} died while others {}: its own output says why", peers_.name(rank), what()));
  }
}

void Control::fail_late(const std::vector<int>& absent, std::uint32_t before, const Describe& what,
                        SteadyTime since) {
  std::vector<std::string> names;
  std::vector<std::string> stopped;
  for (const int rank : absent) {
    names.push_back(peers_.name(rank));
    if (peers_.stopped(rank)) {
      stopped.push_back(fmt::format("kill -CONT {}", peers_.pid(rank)));
    }
  }
  if (completed(before, board_->word.load(std::memory_order_acquire))) {
    return;
  }
  const std::string advice =
      stopped.empty() ? "stuck or slower than that (raise the timeout if it is only slow)"
                      : fmt::format("stopped by a signal (continue with: {})", fmt::join(stopped, "; "));
  fail(FailureKind::timeout,
       fmt::format("{} did not come within {} while others {}: {}", fmt::join(names, ", "),
                   format_seconds(seconds_of(SteadyClock::now()) - seconds_of(since)), what(), advice));
}

void Control::post_failure(FailureKind kind, const std::string& message) noexcept {
  if (board_->failure_claimed.exchange(true, std::memory_order_acq_rel)) {
    return;
  }
  board_->kind = kind;
  const std::size_t length = std::min(message.size(), sizeof(board_->message) - 1);
  std::memcpy(board_->message, message.data(), length);
  board_->message[length] = '\0';
  board_->word.fetch_or(kFailed, std::memory_order_acq_rel);
  wake_all(board_->word);
}

// Who did not claim the failure gives the claimant a moment to write it down, unless it was killed over that.
void Control::fail(FailureKind kind, const std::string& message) {
  post_failure(kind, message);
  const Deadline patience = Deadline::after(kNextLooks);
  do {
    const std::uint32_t now = board_->word.load(std::memory_order_acquire);
    if ((now & kFailed) != 0) {
      throw_failure();
    }
    sleep_on(board_->word, now, patience.remaining());
  } while (!patience.expired());
  throw_as(kind, message);
}

void Control::throw_failure() const { throw_as(board_->kind, board_->message); }

void Control::throw_as(FailureKind kind, const std::string& message) {
  if (kind == FailureKind::timeout) {
    throw TimeoutError(message);
  }
  throw TransportError(message);
}

}  // namespace dear::collective
