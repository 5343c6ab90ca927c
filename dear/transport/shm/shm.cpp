#include "dear/transport/shm/shm.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/transport/shm/board.h"
#include "dear/transport/shm/ends.h"
#include "dear/transport/shm/futex.h"

namespace dear::transport {
namespace {

constexpr std::int64_t kMostRing = 128 * kKiB;
constexpr std::int64_t kLeastRing = 4 * kKiB;
constexpr std::int64_t kAllRings = 32 * kMiB;
constexpr int kSpins = 400;
constexpr auto kFirstLook = std::chrono::milliseconds(5);
constexpr auto kNextLooks = std::chrono::milliseconds(50);

// The largest power of two with which the rings of all pairs stay within kAllRings.
std::int64_t ring_bytes_for(int size) {
  std::int64_t bytes = kMostRing;
  while (bytes > kLeastRing && bytes * size * size > kAllRings) {
    bytes /= 2;
  }
  return bytes;
}

class ShmChannels final : public Channels {
 public:
  ShmChannels(std::shared_ptr<Segment> segment, Peers peers, int rank, int size)
      : rank_(rank),
        size_(size),
        board_(std::move(segment), size, ring_bytes_for(size)),
        peers_(std::move(peers)),
        may_spin_(enough_processors_for(size)),
        out_(static_cast<std::size_t>(size)),
        in_(static_cast<std::size_t>(size)) {
    for (int peer = 0; peer < size; ++peer) {
      out(peer) = SendEnd(board_.ring(rank, peer), ring_bytes_for(size));
      in(peer) = ReceiveEnd(board_.ring(peer, rank), ring_bytes_for(size));
    }
  }
  ShmChannels(const ShmChannels&) = delete;
  ShmChannels& operator=(const ShmChannels&) = delete;
  ~ShmChannels() override {
    // A child that was forked from this rank is not this rank.
    if (getpid() == process_) {
      board_.leave(rank_);
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string description() const override { return "shared memory"; }

  void start(Transfer& transfer) override;
  bool progress() override {
    throw_if_failed();
    return advance();
  }
  void wait(const Describe& what, Deadline deadline) override;
  void abort(const std::string& reason) noexcept override {
    board_.post_failure(ChannelBoard::FailureKind::transport, reason);
  }

 private:
  [[nodiscard]] SendEnd& out(int peer) { return out_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] ReceiveEnd& in(int peer) { return in_[static_cast<std::size_t>(peer)]; }

  void throw_if_failed() const {
    if (board_.failed()) {
      board_.throw_failure();
    }
  }

  // Whether a transfer became done. `moved_` tells whether anything moved.
  bool advance();

  void make_wishes();
  void take_back_wishes();
  [[nodiscard]] std::vector<int> awaited();
  [[nodiscard]] std::vector<int> gone();
  [[noreturn]] void fail_gone(int peer, const Describe& what) const;
  [[noreturn]] void fail_late(const Describe& what, SteadyTime since);

  int rank_;
  int size_;
  ChannelBoard board_;
  Peers peers_;
  bool may_spin_;
  std::vector<SendEnd> out_;
  std::vector<ReceiveEnd> in_;
  bool moved_ = false;
  const pid_t process_ = getpid();
};

void ShmChannels::start(Transfer& transfer) {
  throw_if_failed();
  transfer.done = false;
  if (transfer.direction == Transfer::Direction::send) {
    out(transfer.peer).start(transfer);
  } else {
    in(transfer.peer).start(transfer);
  }
}

bool ShmChannels::advance() {
  bool completed = false;
  moved_ = false;
  const auto count = [&](int peer, const Step& step) {
    completed |= step.completed;
    moved_ |= step.moved;
    if (step.rings) {
      board_.ring_bell(peer);
    }
  };
  for (int peer = 0; peer < size_; ++peer) {
    if (out(peer).busy()) {
      count(peer, out(peer).advance());
    }
    if (in(peer).busy()) {
      try {
        count(peer, in(peer).advance());
      } catch (const TransportError& error) {
        board_.fail(ChannelBoard::FailureKind::transport,
                    fmt::format("{} to rank {}: {}", peers_.name(peer), rank_, error.what()));
      }
    }
  }
  return completed;
}

void ShmChannels::make_wishes() {
  for (int peer = 0; peer < size_; ++peer) {
    out(peer).wish();
    in(peer).wish();
  }
}

void ShmChannels::take_back_wishes() {
  for (int peer = 0; peer < size_; ++peer) {
    out(peer).wish_nothing();
    in(peer).wish_nothing();
  }
}

void ShmChannels::wait(const Describe& what, Deadline deadline) {
  for (int spin = 0;;) {
    throw_if_failed();
    if (advance()) {
      return;
    }
    spin = moved_ ? 0 : spin + 1;
    if (!may_spin_ || spin == kSpins) {
      break;
    }
    relax();
  }
  const SteadyTime since = SteadyClock::now();
  SteadyTime look = since + kFirstLook;
  for (;;) {
    throw_if_failed();
    const std::uint32_t rung = board_.bell(rank_).load();
    make_wishes();
    // What came between the last look and the wishes rang no bell; a failure that came before, neither.
    const bool completed = advance();
    const bool sleep = !completed && !moved_ && !board_.failed();
    const SteadyTime now = SteadyClock::now();
    if (sleep && now < look && !deadline.expired()) {
      sleep_on(board_.bell(rank_), rung,
               std::min<std::chrono::nanoseconds>(look - now, deadline.remaining()));
    }
    take_back_wishes();
    if (completed || advance()) {
      return;
    }
    if (moved_ || !sleep) {
      continue;
    }
    const bool late = deadline.expired();
    if (!late && SteadyClock::now() < look) {
      continue;
    }
    look = SteadyClock::now() + kNextLooks;
    const std::vector<int> away = gone();
    // Whoever went may have written all that is waited for before.
    if (advance()) {
      return;
    }
    if (moved_) {
      continue;
    }
    if (!away.empty()) {
      fail_gone(away.front(), what);
    }
    if (late) {
      fail_late(what, since);
    }
  }
}

std::vector<int> ShmChannels::awaited() {
  std::vector<int> senders;
  std::vector<int> receivers;
  for (int peer = 0; peer < size_; ++peer) {
    if (in(peer).busy()) {
      senders.push_back(peer);
    }
    if (out(peer).busy()) {
      receivers.push_back(peer);
    }
  }
  return senders.empty() ? receivers : senders;
}

// Also those that are only sent to: they will never make room.
std::vector<int> ShmChannels::gone() {
  std::vector<int> away;
  for (int peer = 0; peer < size_; ++peer) {
    const bool concerned = in(peer).busy() || out(peer).busy();
    if (concerned && (board_.has_left(peer) || peers_.ended(peer))) {
      away.push_back(peer);
    }
  }
  return away;
}

void ShmChannels::fail_gone(int peer, const Describe& what) const {
  board_.fail(ChannelBoard::FailureKind::transport, peers_.is_gone(peer, board_.has_left(peer), what()));
}

void ShmChannels::fail_late(const Describe& what, SteadyTime since) {
  const double waited = now_seconds() - seconds_of(since);
  board_.fail(ChannelBoard::FailureKind::timeout, peers_.are_late(awaited(), waited, what()));
}

}  // namespace

std::int64_t shm_channels_bytes(int size) { return ChannelBoard::bytes_for(size, ring_bytes_for(size)); }

std::unique_ptr<Channels> make_shm_channels(std::shared_ptr<Segment> segment, Peers peers, int rank,
                                            int size) {
  return std::make_unique<ShmChannels>(std::move(segment), std::move(peers), rank, size);
}

std::vector<std::unique_ptr<Channels>> make_shm_channels_threads(int size) {
  const auto segment = Segment::create(shm_channels_bytes(size), "the channels between ranks");
  segment->close_file();
  std::vector<std::unique_ptr<Channels>> channels;
  for (int rank = 0; rank < size; ++rank) {
    channels.push_back(make_shm_channels(segment, Peers(), rank, size));
  }
  return channels;
}

}  // namespace dear::transport
