#include "dear/transport/shm/board.h"

#include <cstring>
#include <utility>

#include "dear/base/deadline.h"
#include "dear/base/error.h"
#include "dear/transport/shm/futex.h"

namespace dear::transport {

struct ChannelBoard::Failure {
  alignas(128) std::atomic<std::uint32_t> posted;
  std::atomic<bool> claimed;
  FailureKind kind;
  char message[2000];
};

struct ChannelBoard::Place {
  alignas(128) std::atomic<std::uint32_t> bell;
  alignas(128) std::atomic<bool> left;
};

std::int64_t ChannelBoard::bytes_for(int ranks, std::int64_t ring_bytes) {
  const std::int64_t ring = static_cast<std::int64_t>(sizeof(Ring)) + ring_bytes;
  return static_cast<std::int64_t>(sizeof(Failure)) + ranks * static_cast<std::int64_t>(sizeof(Place)) +
         std::int64_t{ranks} * ranks * ring;
}

ChannelBoard::ChannelBoard(std::shared_ptr<Segment> segment, int ranks, std::int64_t ring_bytes)
    : segment_(std::move(segment)), ranks_(ranks), ring_bytes_(ring_bytes) {}

ChannelBoard::Failure& ChannelBoard::failure() const { return *reinterpret_cast<Failure*>(segment_->data()); }

ChannelBoard::Place& ChannelBoard::place(int rank) const {
  return reinterpret_cast<Place*>(segment_->data() + sizeof(Failure))[rank];
}

Ring* ChannelBoard::ring(int from, int to) const {
  std::byte* rings = segment_->data() + sizeof(Failure) + static_cast<std::size_t>(ranks_) * sizeof(Place);
  const std::int64_t each = static_cast<std::int64_t>(sizeof(Ring)) + ring_bytes_;
  return reinterpret_cast<Ring*>(rings + each * (std::int64_t{from} * ranks_ + to));
}

std::atomic<std::uint32_t>& ChannelBoard::bell(int rank) const { return place(rank).bell; }

void ChannelBoard::ring_bell(int rank) const {
  bell(rank).fetch_add(1);
  wake_all(bell(rank));
}

void ChannelBoard::leave(int rank) const noexcept {
  place(rank).left.store(true);
  for (int other = 0; other < ranks_; ++other) {
    ring_bell(other);
  }
}

bool ChannelBoard::has_left(int rank) const { return place(rank).left.load(); }

bool ChannelBoard::failed() const { return failure().posted.load() != 0; }

void ChannelBoard::throw_failure() const {
  if (failure().kind == FailureKind::timeout) {
    throw TimeoutError(failure().message);
  }
  throw TransportError(failure().message);
}

void ChannelBoard::post_failure(FailureKind kind, const std::string& message) const noexcept {
  Failure& shared = failure();
  if (shared.claimed.exchange(true)) {
    return;
  }
  shared.kind = kind;
  const std::size_t length = std::min(message.size(), sizeof(shared.message) - 1);
  std::memcpy(shared.message, message.data(), length);
  shared.message[length] = '\0';
  shared.posted.store(1);
  wake_all(shared.posted);
  for (int rank = 0; rank < ranks_; ++rank) {
    ring_bell(rank);
  }
}

// Who did not claim the failure gives the claimant a moment to write it down, unless it was killed over that.
void ChannelBoard::fail(FailureKind kind, const std::string& message) const {
  post_failure(kind, message);
  const Deadline patience = Deadline::after(std::chrono::milliseconds(50));
  while (!failed() && !patience.expired()) {
    sleep_on(failure().posted, 0, patience.remaining());
  }
  if (failed()) {
    throw_failure();
  }
  if (kind == FailureKind::timeout) {
    throw TimeoutError(message);
  }
  throw TransportError(message);
}

}  // namespace dear::transport
