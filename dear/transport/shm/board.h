#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>

#include "dear/transport/shm/ring.h"
#include "dear/transport/shm/segment.h"

namespace dear::transport {

// What the ranks of a host share: a bell for each to sleep on, who has left, the one failure that ends the
// channels, and a ring from each rank to each other. Each rank has an object of its own on the shared memory,
// zeroed at first; post_failure() may be called from any thread.
class ChannelBoard {
 public:
  enum class FailureKind : std::uint32_t { transport, timeout };

  static std::int64_t bytes_for(int ranks, std::int64_t ring_bytes);

  ChannelBoard(std::shared_ptr<Segment> segment, int ranks, std::int64_t ring_bytes);

  [[nodiscard]] std::atomic<std::uint32_t>& bell(int rank) const;
  void ring_bell(int rank) const;

  void leave(int rank) const noexcept;
  [[nodiscard]] bool has_left(int rank) const;

  [[nodiscard]] bool failed() const;
  [[noreturn]] void throw_failure() const;
  // Makes this the failure of all, unless there is one, and wakes them.
  void post_failure(FailureKind kind, const std::string& message) const noexcept;
  // Posts, and throws the failure of all.
  [[noreturn]] void fail(FailureKind kind, const std::string& message) const;

  [[nodiscard]] Ring* ring(int from, int to) const;

 private:
  struct Failure;
  struct Place;
  [[nodiscard]] Failure& failure() const;
  [[nodiscard]] Place& place(int rank) const;

  std::shared_ptr<Segment> segment_;
  int ranks_;
  std::int64_t ring_bytes_;
};

}  // namespace dear::transport
