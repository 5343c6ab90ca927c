#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace dear::fabric {

// Small numbers by time, the earliest first; the time of a number can be changed. A binary heap.
class EndQueue {
 public:
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] double first_time() const { return heap_.front().time; }
  [[nodiscard]] std::uint32_t first() const { return heap_.front().id; }

  // Enters `id`, or moves it.
  void set(std::uint32_t id, double time) {
    if (id >= place_.size()) place_.resize(id + 1, kNone);
    std::size_t place = place_[id];
    if (place == kNone) {
      place = heap_.size();
      heap_.emplace_back();
    }
    const Entry entry{.time = time, .id = id};
    place = up(place, entry);
    down(place, entry);
  }

  void pop() {
    place_[heap_.front().id] = kNone;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) down(0, last);
  }

 private:
  struct Entry {
    double time = 0;
    std::uint32_t id = 0;
  };
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  void put(std::size_t place, const Entry& entry) {
    heap_[place] = entry;
    place_[entry.id] = place;
  }
  // Where `entry` belongs above the hole at `place`; the hole is there afterwards.
  std::size_t up(std::size_t place, const Entry& entry) {
    while (place > 0 && entry.time < heap_[(place - 1) / 2].time) {
      put(place, heap_[(place - 1) / 2]);
      place = (place - 1) / 2;
    }
    return place;
  }
  void down(std::size_t place, const Entry& entry) {
    for (std::size_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1].time < heap_[child].time) ++child;
      if (entry.time <= heap_[child].time) break;
      put(place, heap_[child]);
      place = child;
    }
    put(place, entry);
  }

  std::vector<Entry> heap_;
  std::vector<std::size_t> place_;  // by id
};

}  // namespace dear::fabric
