#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dear::transport {

// [Note: rings] Bytes from one rank to another in shared memory. `tail` counts bytes written, `head` bytes
// read, both in units of kGrain; they never wrap, only the place in the ring does. Who is about to sleep says
// in `wake_reader` or `wake_writer` at which count the other is to ring its bell (0: not at all). All of
// these are sequentially consistent: either who moves a count sees the wish, or who wishes sees the count.
struct Ring {
  static constexpr std::int64_t kGrain = 16;
  using Count = std::atomic<std::uint64_t>;
  alignas(128) Count tail;
  alignas(128) Count head;
  alignas(128) Count wake_reader;
  alignas(128) Count wake_writer;

  [[nodiscard]] std::byte* bytes() { return reinterpret_cast<std::byte*>(this) + sizeof(Ring); }
};

inline std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// True when `count` has reached what was wished for; the wish is then taken back.
inline bool reached(Ring::Count& wish, std::uint64_t count) {
  std::uint64_t wished = wish.load();
  return wished != 0 && count >= wished && wish.compare_exchange_strong(wished, 0);
}

// The end that one rank has of a ring of `capacity` bytes, a power of two.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(Ring* ring, std::int64_t capacity)
      : ring_(ring), capacity_(capacity), tail_(ring->tail.load()), head_(ring->head.load()) {}

  // Bytes that can be written, at most `wanted` if that saves a look at the other side.
  [[nodiscard]] std::int64_t room(std::int64_t wanted) {
    if (free() < wanted) {
      head_ = ring_->head.load();
    }
    return free();
  }
  // Takes up a multiple of kGrain; there is room.
  void write(const void* from, std::int64_t bytes) {
    const std::int64_t at = static_cast<std::int64_t>(tail_) & (capacity_ - 1);
    const std::int64_t first = std::min(bytes, capacity_ - at);
    std::memcpy(ring_->bytes() + at, from, static_cast<std::size_t>(first));
    std::memcpy(ring_->bytes(), static_cast<const std::byte*>(from) + first,
                static_cast<std::size_t>(bytes - first));
    tail_ += static_cast<std::uint64_t>(round_up(bytes, Ring::kGrain));
  }
  // Lets the reader see what was written. True when it is to be woken.
  [[nodiscard]] bool publish() {
    ring_->tail.store(tail_);
    return reached(ring_->wake_reader, tail_);
  }
  // To be woken when there is room for `bytes`, or for half of the ring.
  void wish_for_room(std::int64_t bytes) {
    const std::int64_t wanted = std::min(round_up(bytes, Ring::kGrain), capacity_ / 2);
    ring_->wake_writer.store(tail_ + static_cast<std::uint64_t>(wanted) -
                             static_cast<std::uint64_t>(capacity_));
  }
  void wish_nothing() { ring_->wake_writer.store(0); }

 private:
  [[nodiscard]] std::int64_t free() const { return capacity_ - static_cast<std::int64_t>(tail_ - head_); }

  Ring* ring_ = nullptr;
  std::int64_t capacity_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t head_ = 0;  // as last seen
};

class RingReader {
 public:
  RingReader() = default;
  RingReader(Ring* ring, std::int64_t capacity)
      : ring_(ring), capacity_(capacity), tail_(ring->tail.load()), head_(ring->head.load()) {}

  [[nodiscard]] std::int64_t available(std::int64_t wanted) {
    if (filled() < wanted) {
      tail_ = ring_->tail.load();
    }
    return filled();
  }
  void peek(void* to, std::int64_t bytes) const { copy(to, bytes); }
  void read(void* to, std::int64_t bytes) {
    copy(to, bytes);
    skip(bytes);
  }
  void skip(std::int64_t bytes) { head_ += static_cast<std::uint64_t>(round_up(bytes, Ring::kGrain)); }
  // Lets the writer reuse what was read. True when it is to be woken.
  [[nodiscard]] bool release() {
    ring_->head.store(head_);
    return reached(ring_->wake_writer, head_);
  }
  // To be woken when there are `bytes` to read, or half of the ring.
  void wish_for(std::int64_t bytes) {
    const std::int64_t wanted = std::min(round_up(bytes, Ring::kGrain), capacity_ / 2);
    ring_->wake_reader.store(head_ + static_cast<std::uint64_t>(wanted));
  }
  void wish_nothing() { ring_->wake_reader.store(0); }

 private:
  [[nodiscard]] std::int64_t filled() const { return static_cast<std::int64_t>(tail_ - head_); }
  void copy(void* to, std::int64_t bytes) const {
    const std::int64_t at = static_cast<std::int64_t>(head_) & (capacity_ - 1);
    const std::int64_t first = std::min(bytes, capacity_ - at);
    std::memcpy(to, ring_->bytes() + at, static_cast<std::size_t>(first));
    std::memcpy(static_cast<std::byte*>(to) + first, ring_->bytes(), static_cast<std::size_t>(bytes - first));
  }

  Ring* ring_ = nullptr;
  std::int64_t capacity_ = 0;
  std::uint64_t tail_ = 0;  // as last seen
  std::uint64_t head_ = 0;
};

}  // namespace dear::transport
