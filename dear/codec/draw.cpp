#include "dear/codec/draw.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace dear::codec {

Draw::Draw(std::uint64_t seed, std::int64_t step, std::uint64_t key, int rank) : counter_(seed) {
  for (const std::uint64_t part : {static_cast<std::uint64_t>(step), key, static_cast<std::uint64_t>(rank)}) {
    counter_ = next() + part;
  }
  counter_ = next();
}

float Draw::uniform() {
  return static_cast<float>(static_cast<std::int32_t>(next() >> 40) - (1 << 23)) * 0x1p-23F;
}

// [Note: drawing a subset] The first distinct numbers of a sequence of independent uniform ones are a uniform
// subset, by symmetry. Of more than half of all numbers the rest is drawn, so that less than 1.4 numbers of
// the sequence are needed for each distinct one. Whole numbers only: skipping ahead by the distribution of
// the gaps (Vitter 1984, doi:10.1145/358105.893) needs no bits, but logarithms, whose last bits differ
// between libraries, and which take longer than a bit does.
void SubsetDraw::draw(Draw random, std::int64_t elements, std::span<std::uint32_t> subset) {
  if (subset.empty()) {
    return;
  }
  const auto limit = static_cast<std::uint64_t>(elements);
  const std::size_t words = (limit + 63) / 64;
  if (drawn_.size() < words) {
    drawn_.resize(words);
  }
  const bool rest = subset.size() > limit / 2;
  const std::uint64_t count = rest ? limit - subset.size() : subset.size();
  const std::uint32_t unfair = Draw::unfair(limit);
  for (std::uint64_t distinct = 0; distinct < count;) {
    const std::uint32_t number = random.below(limit, unfair);
    std::uint64_t& word = drawn_[number / 64];
    distinct += 1 - ((word >> (number % 64)) & 1);
    word |= std::uint64_t{1} << (number % 64);
  }
  const std::uint64_t flip = rest ? ~std::uint64_t{0} : 0;
  std::uint32_t* out = subset.data();
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word = drawn_[i] ^ flip;
    drawn_[i] = 0;
    if (i == words - 1 && limit % 64 != 0) {
      word &= (std::uint64_t{1} << (limit % 64)) - 1;
    }
    for (; word != 0; word &= word - 1) {
      *out++ = static_cast<std::uint32_t>(i * 64) + static_cast<std::uint32_t>(std::countr_zero(word));
    }
  }
}

}  // namespace dear::codec
