#pragma once

#include <array>
#include <cstdint>

namespace dear::codec {

// Sources compiled for several sets of instructions share these functions, so none may have a copy of its
// own: the linker could choose that of another processor.
#define DEAR_INLINE [[gnu::always_inline]] inline constexpr

// A number below `most`, in proportion to `bits` among 2^32.
DEAR_INLINE std::uint32_t scaled_down(std::uint32_t bits, std::uint32_t most) {
  return static_cast<std::uint32_t>((std::uint64_t{bits} * most) >> 32);
}

// Where keys go, from a seed: the same on every rank and machine. MurmurHash3's last steps of 32 bits, behind
// a multiplication and an addition that differ by purpose. Vector instructions hash eight keys at once.
class KeyHash {
 public:
  explicit constexpr KeyHash(std::uint64_t seed) {
    for (Mix& mix : mixes_) {
      seed += 0x9e3779b97f4a7c15U;
      std::uint64_t bits = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9U;  // SplitMix64
      bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
      bits ^= bits >> 31;
      mix = {.factor = static_cast<std::uint32_t>(bits) | 1, .term = static_cast<std::uint32_t>(bits >> 32)};
    }
  }

  // Returns the number of the group, of so many, that the key belongs to.
  [[nodiscard]] DEAR_INLINE std::uint32_t group(std::uint32_t key, std::uint32_t groups) const {
    return scaled_down(bits(0, key), groups);
  }
  // Its row in each of the group's three ranges, counted from the first of all.
  [[nodiscard]] DEAR_INLINE std::uint32_t row(int which, std::uint32_t key, std::uint32_t range) const {
    return static_cast<std::uint32_t>(which) * range + scaled_down(bits(1 + which, key), range);
  }
  // Bits for a Bloom filter: its line, and 64 from which bits of the line are taken.
  [[nodiscard]] DEAR_INLINE std::uint32_t line(std::uint32_t key, std::uint32_t lines) const {
    return scaled_down(bits(4, key), lines);
  }
  [[nodiscard]] DEAR_INLINE std::uint64_t in_line(std::uint32_t key) const {
    return bits(5, key) | std::uint64_t{bits(6, key)} << 32;
  }

 private:
  struct Mix {
    std::uint32_t factor = 1, term = 0;
  };
  [[nodiscard]] DEAR_INLINE std::uint32_t bits(int purpose, std::uint32_t key) const {
    const Mix& mix = mixes_[static_cast<std::size_t>(purpose)];
    std::uint32_t bits = key * mix.factor + mix.term;
    bits = (bits ^ (bits >> 16)) * 0x85ebca6bU;
    bits = (bits ^ (bits >> 13)) * 0xc2b2ae35U;
    return bits ^ (bits >> 16);
  }

  std::array<Mix, 7> mixes_{};
};

// Three rows of a key within its group, each below 2^16, in one word.
using PackedRows = std::uint64_t;
DEAR_INLINE PackedRows packed(std::uint64_t first, std::uint64_t second, std::uint64_t third) {
  return first | second << 16 | third << 32;
}
DEAR_INLINE std::uint32_t row_of(PackedRows rows, int which) {
  return static_cast<std::uint32_t>(rows >> (16 * which)) & 0xffff;
}

}  // namespace dear::codec
