#include "dear/schedule/codec/draw.h"

#include <algorithm>
#include <array>
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
  std::uint64_t distinct = 0;
  const auto insert = [&](std::uint32_t number) {
    std::uint64_t& word = drawn_[number / 64];
    distinct += 1 - ((word >> (number % 64)) & 1);
    word |= std::uint64_t{1} << (number % 64);
  };
  // As long as all of so many numbers are needed, their bits are fetched from memory together.
  std::array<std::uint32_t, 32> numbers{};
  while (distinct + numbers.size() <= count) {
    for (std::uint32_t& number : numbers) {
      number = random.below(limit, unfair);
      __builtin_prefetch(&drawn_[number / 64], 1);
    }
    for (const std::uint32_t number : numbers) insert(number);
  }
  while (distinct < count) insert(random.below(limit, unfair));
  list(words, rest ? ~std::uint64_t{0} : 0, subset);
  std::fill_n(drawn_.begin(), words, 0);
}

// Words mostly have no bit or one, in no order that a processor could foresee. So the first two of each word
// are written without asking whether they are there, as far as there is room.
void SubsetDraw::list(std::size_t words, std::uint64_t flip, std::span<std::uint32_t> subset) const {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;
  std::uint32_t* out = subset.data();
  const std::uint32_t* end = out + subset.size();
  std::size_t i = 0;
  for (; i < words && end - out >= 2; ++i) {
    const auto base = static_cast<std::uint32_t>(i * 64);
    const std::uint64_t first = drawn_[i] ^ flip;
    const std::uint64_t second = first & (first - 1);
    *out = base + static_cast<std::uint32_t>(std::countr_zero(first | kLast));
    out += static_cast<int>(first != 0);
    *out = base + static_cast<std::uint32_t>(std::countr_zero(second | kLast));
    out += static_cast<int>(second != 0);
    for (std::uint64_t word = second & (second - 1); word != 0 && out != end; word &= word - 1) {
      *out++ = base + static_cast<std::uint32_t>(std::countr_zero(word));
    }
  }
  for (; out != end; ++i) {
    for (std::uint64_t word = drawn_[i] ^ flip; word != 0 && out != end; word &= word - 1) {
      *out++ = static_cast<std::uint32_t>(i * 64) + static_cast<std::uint32_t>(std::countr_zero(word));
    }
  }
}

}  // namespace dear::codec
