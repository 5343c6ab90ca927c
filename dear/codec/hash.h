#pragma once

#include <array>
#include <cstdint>

namespace dear::codec {

// The pieces of 128 bits of a product, folded into 64: the mixing step of wyhash.
constexpr std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// A number below `most`, in proportion to `bits` among 2^32.
constexpr std::uint32_t scaled_down(std::uint32_t bits, std::uint32_t most) {
  return static_cast<std::uint32_t>((std::uint64_t{bits} * most) >> 32);
}

// Where keys go, from a seed: the same on every rank and machine. Each function is independent of the others.
class KeyHash {
 public:
  explicit constexpr KeyHash(std::uint64_t seed) {
    for (std::uint64_t& word : words_) {
      seed += 0x9e3779b97f4a7c15U;
      word = folded_product(seed ^ 0xa0761d6478bd642fU, seed ^ 0xe7037ed1a0b428dbU);
    }
  }

  // 64 bits of the key alone, from which the others are made.
  [[nodiscard]] constexpr std::uint64_t base(std::uint32_t key) const {
    return folded_product(folded_product(key ^ words_[0], 0x8ebc6af09c88c6e3U) ^ words_[1],
                          0x589965cc75374cc3U);
  }
  // Which of the groups the key belongs to.
  static constexpr std::uint32_t group(std::uint64_t base, std::uint32_t groups) {
    return scaled_down(static_cast<std::uint32_t>(base >> 32), groups);
  }
  // Its rows within its group, one in each of three disjoint ranges of `range` rows, at most 2^20 / 3.
  [[nodiscard]] constexpr std::array<std::uint32_t, 3> rows(std::uint64_t base, std::uint32_t range) const {
    const std::uint64_t bits = folded_product(base ^ words_[2], 0x1d8e4e27c47d124fU);
    constexpr std::uint64_t kMask = (1U << kRowBits) - 1;
    const auto row = [&](int which) {
      return static_cast<std::uint32_t>((((bits >> (kRowBits * which)) & kMask) * range) >> kRowBits);
    };
    return {row(0), range + row(1), 2 * range + row(2)};
  }
  // Bits for a Bloom filter.
  [[nodiscard]] constexpr std::uint64_t bloom(std::uint64_t base) const {
    return folded_product(base ^ words_[3], 0xeb44accab455d165U);
  }

  static constexpr int kRowBits = 20;

 private:
  std::array<std::uint64_t, 4> words_{};
};

}  // namespace dear::codec
