#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "dear/schedule/codec/codec.h"

namespace dear::codec::testing {

// Payloads begin at an odd multiple of their alignment, since no codec may ask for more.
class Payload {
 public:
  Payload(std::int64_t bytes, std::size_t alignment)
      : bytes_(static_cast<std::size_t>(bytes) + alignment, std::byte{0xee}), alignment_(alignment) {}
  std::byte* data() { return bytes_.data() + alignment_; }
  [[nodiscard]] const std::byte* data() const { return bytes_.data() + alignment_; }
  template <class T>
  [[nodiscard]] std::vector<T> as() const {
    std::vector<T> elements((bytes_.size() - alignment_) / sizeof(T));
    std::copy_n(data(), elements.size() * sizeof(T), reinterpret_cast<std::byte*>(elements.data()));
    return elements;
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t alignment_;
};

inline Payload encoded(Reducible& codec, std::span<const float> values, std::int64_t step = 0) {
  Payload payload(codec.elements(step) * size_of(codec.dtype()),
                  static_cast<std::size_t>(size_of(codec.dtype())));
  codec.encode(values, step, payload.data());
  return payload;
}
inline Payload encoded(Gatherable& codec, std::span<const float> values, std::int64_t step = 0) {
  Payload payload(codec.bytes(step), 4);
  codec.encode(values, step, payload.data());
  return payload;
}

inline std::vector<float> decoded(Reducible& codec, const Payload& payload, std::size_t elements,
                                  std::int64_t step = 0) {
  std::vector<float> values(elements);
  codec.decode(payload.data(), step, values);
  return values;
}
inline std::vector<float> decoded(Gatherable& codec, const Payload& payload, std::size_t elements,
                                  std::int64_t step = 0) {
  std::vector<float> values(elements);
  codec.add(payload.data(), step, 1, values);
  return values;
}

// The buffer is one segment.
inline std::vector<Segment> whole(std::size_t elements, std::uint64_t key = 5) {
  return {{.range = {0, static_cast<std::int64_t>(elements)}, .key = key}};
}

// Small whole numbers, of which sums are exact, and many are equal or zero.
inline std::vector<float> whole_numbers(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 41) - 20);
  return values;
}

// Every pattern of bits: numbers of each size, infinity and NaN.
inline std::vector<float> any_bits(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  return values;
}

// For comparisons that tell -0 from 0, and find a NaN equal to itself.
inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

}  // namespace dear::codec::testing
