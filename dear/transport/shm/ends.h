#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <vector>

#include "dear/transport/channels.h"
#include "dear/transport/shm/ring.h"

namespace dear::transport {

// What one look at an end did.
struct Step {
  bool completed = false;  // a transfer became done
  bool moved = false;      // anything did
  bool rings = false;      // the other end is to be woken
};

// Where one rank's messages to one peer enter their ring, in the order in which they were started.
class SendEnd {
 public:
  SendEnd() = default;
  SendEnd(Ring* ring, std::int64_t capacity) : ring_(ring, capacity) {}

  void start(Transfer& transfer) { queue_.push_back(&transfer); }
  [[nodiscard]] bool busy() const { return !queue_.empty(); }
  Step advance();
  // Before sleep, and after.
  void wish();
  void wish_nothing() { ring_.wish_nothing(); }

 private:
  RingWriter ring_;
  std::deque<Transfer*> queue_;
  bool framed_ = false;  // the first one's frame is written
  std::int64_t at_ = 0;  // bytes of it that are
};

// Where they leave it. A message goes to the first receive of its tag; while only receives of other tags
// wait, it is taken out of their way and kept; while none waits, it stays in the ring.
class ReceiveEnd {
 public:
  ReceiveEnd() = default;
  ReceiveEnd(Ring* ring, std::int64_t capacity) : ring_(ring, capacity) {}

  void start(Transfer& transfer) { queue_.push_back(&transfer); }
  [[nodiscard]] bool busy() const { return !queue_.empty() || framed_; }
  // TransportError for a message of another length than its receive's; names neither rank.
  Step advance();
  void wish();
  void wish_nothing() { ring_.wish_nothing(); }

 private:
  struct Frame {
    std::int64_t bytes = 0;
    Tag tag = 0;
    std::uint32_t unused = 0;
  };
  struct Stray {
    Tag tag = 0;
    std::vector<std::byte> bytes;
  };
  friend class SendEnd;

  bool open_next();
  bool deliver_strays();
  [[nodiscard]] std::deque<Transfer*>::iterator find_receive(Tag tag);

  RingReader ring_;
  std::deque<Transfer*> queue_;
  std::list<Stray> strays_;
  bool framed_ = false;  // a message is being read:
  Frame frame_;
  std::int64_t at_ = 0;       // bytes of it that were
  Transfer* into_ = nullptr;  // null for the last stray
};

}  // namespace dear::transport
