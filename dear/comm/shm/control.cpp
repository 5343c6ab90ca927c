#include "dear/comm/shm/control.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <unistd.h>
#include <utility>

#include "dear/base/os/cache_line.h"
#include "dear/base/os/futex.h"
#include "dear/base/vocabulary/error.h"

namespace dear::backends {

// [Note: the barrier] Each rank counts the barriers that it entered in lines of its own, one for those of
// even and one for those of odd number, so that what is said there can be read until the next one; and a
// barrier is complete for a rank when all counts are as high as its own: nobody writes what another one
// writes, so a barrier costs each rank a read of every other's line. Who finds some missing spins for a
// moment, then sleeps on `bell`. The last to come rings it, if anybody sleeps: counts and `sleepers` are in
// one total order, so either the sleeper sees the last count or the last to come sees the sleeper. The lowest
// bit of the bell says that the group failed. A completion counts before a failure: who got through a barrier
// is not concerned with what a peer met later.
struct Control::Board {
  alignas(os::kCacheLineBytes) std::atomic<std::uint32_t> bell;
  alignas(os::kCacheLineBytes) std::atomic<std::uint32_t> sleepers;
  alignas(os::kCacheLineBytes) std::atomic<bool> failure_claimed;
  FailureKind kind;
  char message[2000];
};

// The number of barriers that the rank has entered, and what it says with that.
struct Control::Arrival {
  alignas(128) std::atomic<std::uint64_t> phase;
  Brief brief;
};

// The peers read each group of cache lines at another time: the arrival while they wait, and an entry when
// all have come.
struct Control::RankSlot {
  struct Entry {
    alignas(128) RequestSummary summary;
    alignas(16) std::byte note[kNoteBytes];
  };
  Arrival arrivals[2];
  alignas(128) std::atomic<bool> left;
  Entry entries[2];
};

namespace {

using os::enough_processors_for;
using os::relax;
using os::sleep_on;
using os::wake_all;

struct Asleep {
  explicit Asleep(std::atomic<std::uint32_t>& count) : sleepers(count) { sleepers.fetch_add(1); }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;
  ~Asleep() { sleepers.fetch_sub(1); }
  std::atomic<std::uint32_t>& sleepers;
};

constexpr std::uint32_t kFailed = 1;
constexpr std::uint32_t kRing = 2;
constexpr auto kSpin = std::chrono::microseconds(10);
constexpr auto kYield = std::chrono::microseconds(200);
constexpr int kSpinsBetweenClocks = 32;
constexpr auto kFirstLook = std::chrono::milliseconds(5);
constexpr auto kNextLooks = std::chrono::milliseconds(50);
constexpr auto kMeanwhile = std::chrono::milliseconds(1);

constexpr std::int64_t kPlacesAt = 4096;

}  // namespace

std::int64_t Control::bytes_for(int ranks) {
  static_assert(sizeof(Board) <= kPlacesAt);
  static_assert(sizeof(Arrival) == 128);  // two lines, which many processors bring together
  return kPlacesAt + ranks * static_cast<std::int64_t>(sizeof(RankSlot));
}

Control::Control(std::shared_ptr<Segment> segment, Peers peers, int rank, int ranks,
                 std::function<void()> meanwhile)
    : segment_(std::move(segment)),
      peers_(std::move(peers)),
      rank_(rank),
      ranks_(ranks),
      meanwhile_(std::move(meanwhile)),
      board_(reinterpret_cast<Board*>(segment_->data())),
      slots_(reinterpret_cast<RankSlot*>(segment_->data() + kPlacesAt)),
      may_spin_(enough_processors_for(ranks)),
      process_(getpid()) {}

void Control::leave() noexcept {
  // A child that was forked from this rank must not say that the rank has left.
  if (getpid() == process_) {
    slot(rank_).left.store(true, std::memory_order_release);
    wake_all(board_->bell);
  }
}

Control::RankSlot& Control::slot(int rank) const { return slots_[rank]; }

Control::Arrival& Control::arrival(int rank) const { return slot(rank).arrivals[phase_ % 2]; }

Control::Brief& Control::brief_for_next() const { return slot(rank_).arrivals[(phase_ + 1) % 2].brief; }

Control::Brief& Control::brief_of_last(int rank) const { return arrival(rank).brief; }

RequestSummary& Control::summary(int rank, std::uint64_t sequence) const {
  return slot(rank).entries[sequence % 2].summary;
}

std::byte* Control::note(int rank, std::uint64_t sequence) const {
  return slot(rank).entries[sequence % 2].note;
}

// Looks at the ranks behind this one first: peers read the lines of the ranks before it at this moment.
bool Control::all_here() const {
  for (int step = 1; step < ranks_; ++step) {
    const int rank = rank_ + step < ranks_ ? rank_ + step : rank_ + step - ranks_;
    if (arrival(rank).phase.load(std::memory_order_seq_cst) < phase_) {
      return false;
    }
  }
  return true;
}

void Control::barrier(const Describe& what, Deadline deadline, Waiting waiting) {
  if ((board_->bell.load(std::memory_order_acquire) & kFailed) != 0) {
    throw_failure();
  }
  ++phase_;
  arrival(rank_).phase.store(phase_, std::memory_order_seq_cst);
  if (all_here()) {
    if (board_->sleepers.load(std::memory_order_seq_cst) != 0) {
      board_->bell.fetch_add(kRing, std::memory_order_acq_rel);
      wake_all(board_->bell);
    }
    return;
  }
  if ((may_spin_ && spin()) || (waiting == Waiting::yielding && yield())) {
    return;
  }
  sleep_until_all_here(what, deadline);
}

bool Control::spin() const {
  const SteadyTime end = SteadyClock::now() + kSpin;
  do {
    for (int i = 0; i < kSpinsBetweenClocks; ++i) {
      if (all_here()) {
        return true;
      }
      relax();
    }
  } while (SteadyClock::now() < end);
  return false;
}

bool Control::yield() const {
  const SteadyTime end = SteadyClock::now() + kYield;
  do {
    sched_yield();
    if (all_here()) {
      return true;
    }
  } while (SteadyClock::now() < end);
  return false;
}

void Control::sleep_until_all_here(const Describe& what, Deadline deadline) {
  const Asleep asleep(board_->sleepers);
  const SteadyTime since = SteadyClock::now();
  SteadyTime next_look = since + kFirstLook;
  for (;;) {
    const std::uint32_t bell = board_->bell.load(std::memory_order_acquire);
    if (all_here()) {
      return;
    }
    if ((bell & kFailed) != 0) {
      throw_failure();
    }
    const SteadyTime now = SteadyClock::now();
    const bool late = deadline.expired();
    if (late || now >= next_look) {
      const std::vector<int> absent = missing();
      fail_if_gone(absent, what);
      if (late && !absent.empty()) {
        fail_late(absent, what, since);
      }
      next_look = now + kNextLooks;
    }
    std::chrono::nanoseconds pause =
        std::min<std::chrono::nanoseconds>(next_look - now, deadline.remaining());
    if (meanwhile_) {
      meanwhile_();
      pause = std::min<std::chrono::nanoseconds>(pause, kMeanwhile);
    }
    sleep_on(board_->bell, bell, pause);
  }
}

std::vector<int> Control::missing() const {
  std::vector<int> absent;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_ && arrival(rank).phase.load(std::memory_order_acquire) < phase_) {
      absent.push_back(rank);
    }
  }
  return absent;
}

// A rank may come, get through and leave between two looks, so what it did is looked at before its count is.
void Control::fail_if_gone(const std::vector<int>& absent, const Describe& what) {
  for (const int rank : absent) {
    const bool left = slot(rank).left.load(std::memory_order_acquire);
    if (!left && !peers_.ended(rank)) {
      continue;
    }
    if (arrival(rank).phase.load(std::memory_order_acquire) >= phase_) {
      continue;
    }
    fail(FailureKind::transport, peers_.is_gone(rank, left, what()));
  }
}

void Control::fail_late(const std::vector<int>& absent, const Describe& what, SteadyTime since) {
  const std::string message = peers_.are_late(absent, now_seconds() - seconds_of(since), what());
  if (!all_here()) {
    fail(FailureKind::timeout, message);
  }
}

void Control::post_failure(FailureKind kind, const std::string& message) noexcept {
  if (board_->failure_claimed.exchange(true, std::memory_order_acq_rel)) {
    return;
  }
  board_->kind = kind;
  const std::size_t length = std::min(message.size(), sizeof(board_->message) - 1);
  std::memcpy(board_->message, message.data(), length);
  board_->message[length] = '\0';
  board_->bell.fetch_or(kFailed, std::memory_order_acq_rel);
  wake_all(board_->bell);
}

// A rank that did not claim the failure gives the claimant a moment to write it down, unless the claimant was
// killed.
void Control::fail(FailureKind kind, const std::string& message) {
  post_failure(kind, message);
  const Deadline patience = Deadline::after(kNextLooks);
  do {
    const std::uint32_t now = board_->bell.load(std::memory_order_acquire);
    if ((now & kFailed) != 0) {
      throw_failure();
    }
    sleep_on(board_->bell, now, patience.remaining());
  } while (!patience.expired());
  throw_as(kind, message);
}

void Control::throw_if_failed() const {
  if ((board_->bell.load(std::memory_order_acquire) & kFailed) != 0) throw_failure();
}

// It writes `sleepers`, as a sleeper does: one of the two sees the other.
void Control::ring() {
  if (board_->sleepers.fetch_add(0, std::memory_order_seq_cst) == 0) return;
  board_->bell.fetch_add(kRing, std::memory_order_acq_rel);
  wake_all(board_->bell);
}

bool Control::sleep_unless(const std::function<bool()>& done, std::chrono::nanoseconds pause) {
  const Asleep asleep(board_->sleepers);
  const std::uint32_t bell = board_->bell.load(std::memory_order_acquire);
  if (done() || (bell & kFailed) != 0) return true;
  sleep_on(board_->bell, bell, pause);
  return done();
}

std::vector<int> Control::gone_of(const std::vector<int>& ranks) const {
  std::vector<int> gone;
  for (const int rank : ranks)
    if (slot(rank).left.load(std::memory_order_acquire) || peers_.ended(rank)) gone.push_back(rank);
  return gone;
}

void Control::fail_gone(int rank, const Describe& what) {
  fail(FailureKind::transport, peers_.is_gone(rank, slot(rank).left.load(std::memory_order_acquire), what()));
}

void Control::fail_late_beside(const std::vector<int>& ranks, const Describe& what, SteadyTime since) {
  fail(FailureKind::timeout, peers_.are_late(ranks, now_seconds() - seconds_of(since), what()));
}

void Control::throw_failure() const { throw_as(board_->kind, board_->message); }

void Control::throw_as(FailureKind kind, const std::string& message) {
  if (kind == FailureKind::timeout) {
    throw TimeoutError(message);
  }
  throw TransportError(message);
}

}  // namespace dear::backends
