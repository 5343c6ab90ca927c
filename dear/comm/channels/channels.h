#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/vocabulary/deadline.h"

namespace dear::channels {

inline Deadline earlier(Deadline one, Deadline other) { return one.at() < other.at() ? one : other; }

// What tells messages between two ranks apart, beside their order: 0 to kMostTag.
using Tag = std::uint32_t;
inline constexpr Tag kMostTag = 32'000;  // MPI promises its users 32767

// One message on its way, as one of its two ends sees it. The owner keeps it in place, and the memory as it
// is, from start() until `done` (or until the channels are gone).
struct Transfer {
  enum class Direction : std::uint8_t { send, receive };
  Direction direction = Direction::send;
  int peer = 0;
  Tag tag = 0;
  std::byte* data = nullptr;  // only read when it is sent
  std::int64_t bytes = 0;
  bool agreed = false;  // both ends tell each other what they send: channels need not compare lengths
  bool done = false;    // set by the channels, in progress() and wait()
};

// One rank's channels to all others: tagged bytes in both directions. Nothing waits but wait(). Messages from
// one rank to another with one tag arrive in the order in which they were started; a message of another
// length than its receive expects is a TransportError that names both (of agreed ones, it may also never
// arrive). A send may be done before the peer receives.
//
// One thread at a time uses them; abort() may come from any. After a failure everything throws it.
class Channels {
 public:
  Channels() = default;
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;
  virtual ~Channels() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual std::string description() const = 0;                 // "Open MPI 4.1.4"
  [[nodiscard]] virtual std::string modelled_network() const { return ""; }  // "" when real

  // `transfer.peer` is another rank.
  virtual void start(Transfer& transfer) = 0;

  // Moves on what can be moved. True when a transfer became done in it.
  virtual bool progress() = 0;

  // Says in words, for a message, what this rank does: "wait in collective 3". Called only on failure.
  using Describe = std::function<std::string()>;

  // progress() until a transfer becomes done; between two looks it spins for a moment, then sleeps. At the
  // deadline a TimeoutError that names the peers of the unfinished receives; a TransportError when one of
  // them died or left, or any rank aborted.
  void wait(const Describe& what, Deadline deadline) { wait_until(what, deadline, deadline); }
  // Waits likewise, but returns at `until` at the latest, whether a transfer became done or not.
  virtual void wait_until(const Describe& what, Deadline deadline, Deadline until) = 0;

  // Keeps what unfinished transfers may still read or write until no message can.
  virtual void keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }

  // Everything throws a TransportError with this reason, here and, as soon as they look, on all ranks.
  virtual void abort(const std::string& reason) noexcept = 0;

 private:
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace dear::channels
