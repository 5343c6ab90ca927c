#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace dear::codec {

// A block of neighbours in a segment that goes on at the beginning where it reaches beyond the end: two
// parts, the second empty where it does not.
template <class Value>
struct Window {
  Window(std::span<Value> segment, std::size_t begin, std::size_t count)
      : front(segment.subspan(begin, std::min(count, segment.size() - begin))),
        back(segment.first(count - front.size())) {}
  [[nodiscard]] std::size_t size() const { return front.size() + back.size(); }
  std::span<Value> front;
  std::span<Value> back;
};

// Copies the elements of a window, in its order.
inline void copy_out(const Window<const float>& window, float* to) {
  std::copy(window.front.begin(), window.front.end(), to);
  std::copy(window.back.begin(), window.back.end(), to + window.front.size());
}

// Sets each element of a window to set(element, the number in `from` at the same place).
template <class Set>
void merge(const Window<float>& window, const float* from, Set set) {
  for (float& value : window.front) value = set(value, *from++);
  for (float& value : window.back) value = set(value, *from++);
}

inline void clear(const Window<float>& window) {
  std::fill(window.front.begin(), window.front.end(), 0.0F);
  std::fill(window.back.begin(), window.back.end(), 0.0F);
}

}  // namespace dear::codec
