#pragma once

#include <cstdint>

#include "dear/schedule/codec/hash.h"

namespace dear::codec {

// A Bloom filter in which all bits of a key lie in one line of 64 bytes (Putze et al. 2009,
// doi:10.1145/1498698.1594230), so that a look costs one access to memory. The filter of a union is the
// bitwise or of filters. Does not own its words.
template <typename Word>
class BloomFilter {
 public:
  static constexpr int kMostBits = 7;  // nine bits of a hash each

  // 8 x lines words, all zero at first; `bits` from 1 to kMostBits.
  BloomFilter(Word* words, std::uint32_t lines, int bits, const KeyHash& hash)
      : words_(words), lines_(lines), bits_(bits), hash_(hash) {}

  void add(std::uint32_t key) const {
    Word* const line = line_of(key);
    std::uint64_t bits = hash_.in_line(key);
    for (int i = 0; i < bits_; ++i, bits >>= 9) line[(bits >> 6) & 7] |= std::uint64_t{1} << (bits & 63);
  }
  // True for every key that was added, and for some others.
  [[nodiscard]] bool may_have(std::uint32_t key) const {
    const Word* const line = line_of(key);
    std::uint64_t bits = hash_.in_line(key);
    std::uint64_t all = 1;
    for (int i = 0; i < bits_; ++i, bits >>= 9) all &= line[(bits >> 6) & 7] >> (bits & 63);
    return all != 0;
  }

 private:
  [[nodiscard]] Word* line_of(std::uint32_t key) const {
    return words_ + 8 * std::uint64_t{hash_.line(key, lines_)};
  }

  Word* words_;
  std::uint32_t lines_;
  int bits_;
  KeyHash hash_;
};

}  // namespace dear::codec
