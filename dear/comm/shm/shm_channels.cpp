#include "dear/comm/shm/shm_channels.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <list>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"

namespace dear::backends {
namespace {

using channels::Tag;
using channels::Transfer;

constexpr std::int64_t kRingBytes = std::int64_t{1} << 20;
constexpr auto kSpinOfMessages = std::chrono::microseconds(20);
constexpr auto kLookAtPeers =
    std::chrono::milliseconds(50);  // from one look at whether peers are there to the next

// Bytes from one rank to another; both counts only grow. All zero at first.
struct Ring {
  alignas(2 * os::kCacheLineBytes) std::atomic<std::uint64_t> written;
  alignas(2 * os::kCacheLineBytes) std::atomic<std::uint64_t> read;
  alignas(2 * os::kCacheLineBytes) std::byte bytes[kRingBytes];

  // Writes or reads at most `count` bytes, and says how many; only one thread does each.
  std::int64_t write(const std::byte* from, std::int64_t count) {
    const std::uint64_t at = written.load(std::memory_order_relaxed);
    count =
        std::min(count, kRingBytes - static_cast<std::int64_t>(at - read.load(std::memory_order_acquire)));
    in_pieces(at, count, [&](std::byte* place, std::int64_t done, std::int64_t piece) {
      std::memcpy(place, from + done, static_cast<std::size_t>(piece));
    });
    written.store(at + static_cast<std::uint64_t>(count), std::memory_order_release);
    return count;
  }
  std::int64_t take(std::byte* to, std::int64_t count) {
    const std::uint64_t at = read.load(std::memory_order_relaxed);
    count = std::min(count, static_cast<std::int64_t>(written.load(std::memory_order_acquire) - at));
    in_pieces(at, count, [&](const std::byte* place, std::int64_t done, std::int64_t piece) {
      std::memcpy(to + done, place, static_cast<std::size_t>(piece));
    });
    read.store(at + static_cast<std::uint64_t>(count), std::memory_order_release);
    return count;
  }

 private:
  template <typename Copy>
  void in_pieces(std::uint64_t at, std::int64_t count, const Copy& copy) {
    for (std::int64_t done = 0; done < count;) {
      const auto place = static_cast<std::int64_t>((at + static_cast<std::uint64_t>(done)) % kRingBytes);
      const std::int64_t piece = std::min(count - done, kRingBytes - place);
      copy(bytes + place, done, piece);
      done += piece;
    }
  }
};

// In front of each message.
struct Head {
  std::int64_t bytes = 0;
  std::uint64_t tag = 0;
};

struct Outgoing {
  Transfer* transfer = nullptr;
  Head head{};
  std::int64_t done = 0;  // bytes of the head and the message
};

// A message that arrives, or has arrived, with no receive of its own yet.
struct PutAside {
  Head head{};
  std::vector<std::byte> content;
  bool whole = false;
};

struct Peer {
  Ring *to = nullptr, *from = nullptr;
  std::deque<Outgoing> outgoing;
  std::list<Transfer*> expected;  // receives in the order of their start
  std::list<PutAside> aside;
  // The message that is being read.
  Head head{};
  std::int64_t done = 0;           // bytes of the head and the message
  Transfer* receive = nullptr;     // whose it is
  PutAside* unexpected = nullptr;  // else
};

class ShmChannels final : public channels::Channels {
 public:
  ShmChannels(SharedMemory& memory, std::shared_ptr<Control> control, Deadline deadline)
      : control_(std::move(control)),
        rings_(memory.allocate(memory.size() * static_cast<std::int64_t>(sizeof(Ring)), deadline)),
        rank_(memory.rank()),
        name_(memory.name()),
        peers_(static_cast<std::size_t>(memory.size())) {
    const auto ring = [&](int of, int from) {
      return reinterpret_cast<Ring*>(memory.part_of(rings_, of)) + from;
    };
    for (int peer = 0; peer < size(); ++peer) {
      peers_[static_cast<std::size_t>(peer)].to = ring(peer, rank_);
      peers_[static_cast<std::size_t>(peer)].from = ring(rank_, peer);
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(peers_.size()); }
  [[nodiscard]] std::string description() const override { return "shared memory"; }

  void start(Transfer& transfer) override {
    control_->throw_if_failed();
    transfer.done = false;
    Peer& peer = peers_[static_cast<std::size_t>(transfer.peer)];
    if (transfer.direction == Transfer::Direction::receive) {
      peer.expected.push_back(&transfer);
      match(peer);
    } else {
      peer.outgoing.push_back(
          {.transfer = &transfer, .head = {.bytes = transfer.bytes, .tag = transfer.tag}});
      push(peer);
    }
  }

  bool progress() override {
    control_->throw_if_failed();
    return advance();
  }

  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    const SteadyTime since = SteadyClock::now();
    const Deadline end = channels::earlier(deadline, until);
    SteadyTime next_look = since + kLookAtPeers;
    while (true) {
      control_->throw_if_failed();
      if (advance()) return;
      const SteadyTime now = SteadyClock::now();
      if (now >= end.at() || now >= next_look) {
        const std::vector<int> gone = control_->gone_of(awaited());
        if (advance()) return;  // what those wrote before they left
        for (const int rank : awaited())
          if (std::count(gone.begin(), gone.end(), rank) > 0) control_->fail_gone(rank, what);
        if (now >= deadline.at() && !awaited().empty()) control_->fail_late_beside(awaited(), what, since);
        if (now >= end.at()) return;
        next_look = now + kLookAtPeers;
      }
      if (now - since < kSpinOfMessages) continue;
      const bool done = control_->sleep_unless(
          [this] { return advance(); }, std::min<std::chrono::nanoseconds>(next_look - now, end.remaining()));
      control_->throw_if_failed();
      if (done) return;
    }
  }

  void abort(const std::string& reason) noexcept override {
    control_->post_failure(Control::FailureKind::transport, reason);
  }

 private:
  // Whether a transfer became done.
  bool advance() {
    bool moved = false;
    for (Peer& peer : peers_) {
      moved = push(peer) || moved;
      moved = pull(peer) || moved;
    }
    if (moved) control_->ring();  // who waits for room, or for what was written
    return std::exchange(became_done_, false);
  }

  void end(Transfer& transfer) { transfer.done = became_done_ = true; }

  bool push(Peer& peer) {
    bool moved = false;
    while (!peer.outgoing.empty()) {
      Outgoing& one = peer.outgoing.front();
      const auto head = static_cast<std::int64_t>(sizeof one.head);
      if (one.done < head)
        one.done += peer.to->write(reinterpret_cast<const std::byte*>(&one.head) + one.done, head - one.done);
      const std::int64_t before = one.done;
      if (one.done >= head)
        one.done += peer.to->write(one.transfer->data + (one.done - head), head + one.head.bytes - one.done);
      moved = moved || one.done != before;
      if (one.done < head + one.head.bytes) return moved;
      end(*one.transfer);
      peer.outgoing.pop_front();
      moved = true;
    }
    return moved;
  }

  bool pull(Peer& peer) {
    bool moved = false;
    const auto head = static_cast<std::int64_t>(sizeof peer.head);
    for (;;) {
      if (peer.done < head) {
        peer.done += peer.from->take(reinterpret_cast<std::byte*>(&peer.head) + peer.done, head - peer.done);
        if (peer.done < head) return moved;
        begin(peer);
      }
      std::byte* const to = peer.receive != nullptr ? peer.receive->data : peer.unexpected->content.data();
      const std::int64_t taken = peer.from->take(to + (peer.done - head), head + peer.head.bytes - peer.done);
      moved = moved || taken > 0;
      peer.done += taken;
      if (peer.done < head + peer.head.bytes) return moved;
      moved = true;
      peer.done = 0;
      if (peer.receive != nullptr) {
        end(*std::exchange(peer.receive, nullptr));
      } else {
        std::exchange(peer.unexpected, nullptr)->whole = true;
        match(peer);
      }
    }
  }

  // A head was read: whose message is it?
  void begin(Peer& peer) {
    const auto tag_is = [&](const auto& tag) { return tag == peer.head.tag; };
    const bool earlier = std::any_of(peer.aside.begin(), peer.aside.end(),
                                     [&](const PutAside& one) { return tag_is(one.head.tag); });
    const auto found = std::find_if(peer.expected.begin(), peer.expected.end(),
                                    [&](const Transfer* one) { return tag_is(one->tag); });
    if (!earlier && found != peer.expected.end()) {
      require_length(**found, peer.head);
      peer.receive = *found;
      peer.expected.erase(found);
      return;
    }
    peer.unexpected = &peer.aside.emplace_back(PutAside{
        .head = peer.head, .content = std::vector<std::byte>(static_cast<std::size_t>(peer.head.bytes))});
  }

  // Gives what was put aside to receives that came later.
  void match(Peer& peer) {
    for (auto receive = peer.expected.begin(); receive != peer.expected.end();) {
      const auto found = std::find_if(peer.aside.begin(), peer.aside.end(),
                                      [&](const PutAside& one) { return one.head.tag == (*receive)->tag; });
      if (found == peer.aside.end() || !found->whole) {
        ++receive;
        continue;
      }
      require_length(**receive, found->head);
      if (!found->content.empty())
        std::memcpy((*receive)->data, found->content.data(), found->content.size());
      end(**receive);
      peer.aside.erase(found);
      receive = peer.expected.erase(receive);
    }
  }

  void require_length(const Transfer& receive, const Head& head) const {
    if (head.bytes == receive.bytes) return;
    control_->fail(Control::FailureKind::transport,
                   fmt::format("rank {} sent {} bytes to rank {}, which expects {}", receive.peer, head.bytes,
                               name_, receive.bytes));
  }

  [[nodiscard]] std::vector<int> awaited() const {
    std::vector<int> ranks;
    for (int peer = 0; peer < size(); ++peer) {
      const Peer& one = peers_[static_cast<std::size_t>(peer)];
      if (!one.outgoing.empty() || !one.expected.empty() || one.receive != nullptr) ranks.push_back(peer);
    }
    return ranks;
  }

  const std::shared_ptr<Control> control_;
  const Buffer rings_;
  const int rank_, name_;
  std::vector<Peer> peers_;
  bool became_done_ = false;  // a transfer, since the last advance()
};

}  // namespace

std::unique_ptr<channels::Channels> make_shm_channels(SharedMemory& memory, std::shared_ptr<Control> control,
                                                      Deadline deadline) {
  return std::make_unique<ShmChannels>(memory, std::move(control), deadline);
}

}  // namespace dear::backends
