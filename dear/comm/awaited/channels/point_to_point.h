#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace dear::channels {

// A send or receive that a messaging library has begun. Destroyed before it is complete, it stays with the
// messaging library where that cannot take it back (PointToPoint::forgets_memory).
class Posted {
 public:
  Posted() = default;
  Posted(const Posted&) = delete;
  Posted& operator=(const Posted&) = delete;
  virtual ~Posted() = default;

  // Sleeps until it is complete. False once interrupted; throws why it failed.
  virtual bool wait(const std::atomic<bool>& interrupted) = 0;
  // Ends the wait of another thread for it, now or the next one; `interrupted` has been set before.
  virtual void interrupt() noexcept = 0;
  // Whether it is complete, for when it must be by now: if it is not, it never will be. Breaks nothing.
  virtual bool is_complete() = 0;
  // Nobody will be here to complete it: tells the peer by breaking the connection, maybe those to other peers
  // too, and throwing.
  virtual void break_off() = 0;
};

// A messaging library carries tagged messages between ranks, and says that one is complete only to the thread
// that waits for it: Gloo's messages, and c10d's process groups over any of their messaging libraries.
// Messages from one rank to another with one tag arrive in the order in which they were begun. Connections
// break when it is destroyed.
//
// Any thread may begin a message. A failure is a std::exception with the messaging library's own words, never
// a dear::Error; a connection that broke raises no SIGPIPE. Nothing that crosses this interface is freed by
// the other side than the one that allocated it, since a messaging library may be a loaded module
// (base/os/module.h).
class PointToPoint {
 public:
  PointToPoint() = default;
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;
  virtual ~PointToPoint() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const char* description() const = 0;  // "Gloo 0.5.0"

  // Begins to send, or to receive into, memory that stays until the message is complete or dropped. Tags go
  // from 0 to kMostPointToPointTag; both ends give the same number of bytes.
  virtual std::unique_ptr<Posted> send(void* data, std::int64_t bytes, int peer, int tag) = 0;
  virtual std::unique_ptr<Posted> receive(void* data, std::int64_t bytes, int peer, int tag) = 0;

  // Whether a message that is dropped before it is complete lets go of its memory. If not, that memory has
  // to stay for good.
  [[nodiscard]] virtual bool forgets_memory() const = 0;
};

}  // namespace dear::channels
