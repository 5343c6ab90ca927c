#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dear::codec {

// Random numbers that depend on a seed, a step, a key and, where each rank draws its own, a rank: the same
// numbers for every compiler and processor. A value. The generator is SplitMix64 (Steele, Lea and Flood 2014,
// doi:10.1145/2660193.2660195).
class Draw {
 public:
  static constexpr int kEveryRank = -1;
  Draw(std::uint64_t seed, std::int64_t step, std::uint64_t key, int rank = kEveryRank);

  std::uint64_t next() {
    counter_ += kStride;
    return mix(counter_);
  }
  // Returns a whole number from 0 to limit - 1, each equally likely; limit is at least 1 and at most 2^32
  // (Lemire 2019, doi:10.1145/3230636).
  std::uint32_t below(std::uint64_t limit) { return below(limit, unfair(limit)); }
  // Returns a number in [-1, 1), a multiple of 2^-23.
  float uniform();

  // Does as below(limit), for a limit whose unfair() is known.
  std::uint32_t below(std::uint64_t limit, std::uint32_t unfair) {
    std::uint64_t product = (next() >> 32) * limit;
    while (static_cast<std::uint32_t>(product) < unfair) product = (next() >> 32) * limit;
    return static_cast<std::uint32_t>(product >> 32);
  }
  // Returns how many of 2^32 numbers are too many for each result below `limit` to get equally many.
  static std::uint32_t unfair(std::uint64_t limit) {
    return static_cast<std::uint32_t>(((std::uint64_t{1} << 32) - limit) % limit);
  }

 private:
  static constexpr std::uint64_t kStride = 0x9e3779b97f4a7c15ULL;
  static std::uint64_t mix(std::uint64_t bits) {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
    return bits ^ (bits >> 31);
  }
  std::uint64_t counter_;
};

// Draws distinct numbers in ascending order. Keeps a bit for each number that may be drawn.
class SubsetDraw {
 public:
  // Fills `subset` with distinct numbers below `elements` (at most 2^32, and at least as many as asked for),
  // ascending. Each subset of this size is equally likely. Takes time for each number in `subset` and, a
  // thirtieth of what it takes to read so many floats, for each 64 elements.
  void draw(Draw random, std::int64_t elements, std::span<std::uint32_t> subset);

 private:
  // Writes where the bits of the first words are, each compared with those of `flip`.
  void list(std::size_t words, std::uint64_t flip, std::span<std::uint32_t> subset) const;

  std::vector<std::uint64_t> drawn_;  // zero between calls
};

}  // namespace dear::codec
