#include "dear/schedule/codec/index.h"

#include <algorithm>
#include <bit>

namespace dear::codec {
namespace {

constexpr std::int64_t kExponentWords = 4;  // one bit for each biased exponent of an fp32

std::int64_t rank_words(int ranks) { return (ranks + 63) / 64; }

void set_bit(std::span<std::uint64_t> words, std::int64_t bit) {
  words[static_cast<std::size_t>(bit / 64)] |= std::uint64_t{1} << (bit % 64);
}

std::vector<int> bits_of(std::span<const std::uint64_t> words) {
  std::vector<int> found;
  for (std::size_t word = 0; word < words.size(); ++word) {
    for (std::uint64_t rest = words[word]; rest != 0; rest &= rest - 1) {
      found.push_back(static_cast<int>(64 * word) + std::countr_zero(rest));
    }
  }
  return found;
}

}  // namespace

std::int64_t index_header_words(int ranks) { return (3 * rank_words(ranks) + kExponentWords + 7) / 8 * 8; }

void write_header(std::span<std::uint64_t> index, int ranks, int rank, const Met& met) {
  const auto words = static_cast<std::size_t>(rank_words(ranks));
  std::fill_n(index.begin(), index_header_words(ranks), 0);
  if (met.not_finite) set_bit(index.first(words), rank);
  if (met.overflow) set_bit(index.subspan(words, words), rank);
  if (met.inexact) set_bit(index.subspan(2 * words, words), rank);
  if (met.largest_bits != 0) set_bit(index.subspan(3 * words, kExponentWords), met.largest_bits >> 23);
}

IndexHeader read_header(std::span<const std::uint64_t> index, int ranks) {
  const auto words = static_cast<std::size_t>(rank_words(ranks));
  IndexHeader header{.not_finite = bits_of(index.first(words)),
                     .overflow = bits_of(index.subspan(words, words)),
                     .inexact = bits_of(index.subspan(2 * words, words))};
  const std::vector<int> exponents = bits_of(index.subspan(3 * words, kExponentWords));
  // A biased exponent e means magnitudes below 2^(e - 126); 0, of denormals, below 2^-126.
  if (!exponents.empty()) header.exponent = exponents.back() - 126;
  return header;
}

}  // namespace dear::codec
