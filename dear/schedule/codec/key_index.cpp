#include "dear/schedule/codec/key_index.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/bloom.h"
#include "dear/schedule/codec/kernels.h"

namespace dear::codec {
namespace {

// Values looked at together: they, and the keys found in them, stay in the first-level cache.
constexpr std::int64_t kPart = 4096;

// Calls found(number) for each bit that is set, in ascending order.
template <typename Found>
void for_each_bit(const std::uint64_t* bits, std::int64_t words, const Found& found) {
  for (std::int64_t word = 0; word < words; ++word) {
    for (std::uint64_t rest = bits[word]; rest != 0; rest &= rest - 1)
      found(64 * word + std::countr_zero(rest));
  }
}

}  // namespace

void require_length(std::size_t found, std::int64_t wanted, const char* what) {
  if (static_cast<std::int64_t>(found) != wanted) {
    throw ConfigError(fmt::format("a sketch of this shape has {} {}, and was given {}", wanted, what, found));
  }
}

KeyIndex::KeyIndex(const SketchShape& shape) : shape_(shape), hash_(shape.seed) {
  const bool sizes = shape.elements >= 0 && shape.block > 0 && shape.ranks > 0 && shape.bloom_lines >= 0 &&
                     shape.bloom_bits >= 0;
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  if (!sizes || shape.keys() >= kMost || shape.bloom_bits > BloomFilter<std::uint64_t>::kMostBits ||
      shape.bloom_lines >= kMost / 8) {
    throw ConfigError(
        fmt::format("an index of {} elements in blocks of {}, for {} ranks, cannot be made: choose another "
                    "block, or send these elements dense",
                    shape.elements, shape.block, shape.ranks));
  }
  const std::int64_t keys_at_once = std::max<std::int64_t>(1, kPart / shape.block);
  found_.resize(static_cast<std::size_t>(keys_at_once));
  bits_.resize(static_cast<std::size_t>((keys_at_once * shape.block + 63) / 64));
}

// Lists in found_ the keys of [begin, begin + length) in which some bit is set; returns how many.
std::int64_t KeyIndex::find_keys(const std::uint64_t* bits, std::int64_t begin, std::int64_t length) {
  std::uint32_t* const found = found_.data();
  std::uint32_t* end = found;
  const std::int64_t block = shape_.block;
  const auto first = static_cast<std::uint32_t>(begin / block);
  const std::int64_t words = (length + 63) / 64;
  if (block == 1) {
    for_each_bit(bits, words, [&](std::int64_t bit) { *end++ = first + static_cast<std::uint32_t>(bit); });
  } else {
    std::int64_t next = 0;  // the first bit of the first key that is not found yet
    for_each_bit(bits, words, [&](std::int64_t bit) {
      if (bit < next) return;
      const std::int64_t key = bit / block;
      *end++ = first + static_cast<std::uint32_t>(key);
      next = (key + 1) * block;
    });
  }
  return end - found;
}

Met KeyIndex::encode(std::span<const float> values, std::span<std::uint64_t> index, const Found& found) {
  require_length(values.size(), shape_.elements, "values");
  require_length(index.size(), shape_.index_words(), "words of the index");
  const std::int64_t block = shape_.block;
  const bool has_bloom = shape_.bloom_lines > 0;
  std::uint64_t* const body = index.data() + index_header_words(shape_.ranks);
  if (block > 1 || has_bloom) std::fill(body, index.data() + index.size(), 0);
  const BloomFilter<std::uint64_t> bloom(body, static_cast<std::uint32_t>(shape_.bloom_lines),
                                         shape_.bloom_bits, hash_);
  const auto part = static_cast<std::int64_t>(found_.size()) * block;
  Met met;
  for (std::int64_t begin = 0; begin < shape_.elements; begin += part) {
    const std::int64_t length = std::min(part, shape_.elements - begin);
    std::uint64_t* const bits = block == 1 && !has_bloom ? body + begin / 64 : bits_.data();
    const std::uint32_t largest = kernels().scan(values.data() + begin, length, bits);
    if (largest == 0) continue;
    met.largest_bits = std::max(met.largest_bits, largest);
    met.not_finite |= largest >= kInfinityBits;
    if (!found && block == 1 && !has_bloom) continue;  // the bitmap is there
    const std::span<const std::uint32_t> keys(found_.data(),
                                              static_cast<std::size_t>(find_keys(bits, begin, length)));
    if (has_bloom) {
      for (const std::uint32_t key : keys) bloom.add(key);
    } else if (block > 1) {
      for (const std::uint32_t key : keys) body[key / 64] |= std::uint64_t{1} << (key % 64);
    }
    if (found) found(largest, keys);
  }
  return met;
}

// A bitmap of the keys that the index has, or may have.
std::span<const std::uint64_t> KeyIndex::candidates_in(std::span<const std::uint64_t> index) {
  const std::span<const std::uint64_t> body =
      index.subspan(static_cast<std::size_t>(index_header_words(shape_.ranks)));
  const std::int64_t keys = shape_.keys();
  if (shape_.bloom_lines == 0) {
    if (keys % 64 != 0 && body.back() >> (keys % 64) != 0) {
      throw MismatchError(fmt::format(
          "the index of a sketch names keys beyond its {}: all ranks must make sketches of one shape", keys));
    }
    return body;
  }
  const BloomFilter<const std::uint64_t> bloom(body.data(), static_cast<std::uint32_t>(shape_.bloom_lines),
                                               shape_.bloom_bits, hash_);
  candidates_.resize(static_cast<std::size_t>((keys + 63) / 64));
  std::uint32_t key = 0;
  for (std::uint64_t& word : candidates_) {
    const auto in_word = static_cast<std::uint32_t>(std::min<std::int64_t>(64, keys - key));
    std::uint64_t bits = 0;
    for (std::uint32_t bit = 0; bit < in_word; ++bit) bits |= std::uint64_t{bloom.may_have(key++)} << bit;
    word = bits;
  }
  return candidates_;
}

IndexHeader KeyIndex::read(std::span<const std::uint64_t> index) {
  require_length(index.size(), shape_.index_words(), "words of the index");
  const std::span<const std::uint64_t> candidates = candidates_in(index);
  std::size_t keys = 0;
  for (const std::uint64_t word : candidates) keys += static_cast<std::size_t>(std::popcount(word));
  keys_.resize(keys);
  std::uint32_t* key = keys_.data();
  for_each_bit(candidates.data(), static_cast<std::int64_t>(candidates.size()),
               [&](std::int64_t bit) { *key++ = static_cast<std::uint32_t>(bit); });
  return read_header(index, shape_.ranks);
}

void KeyIndex::gather(std::span<const float> values, std::span<float> by_key) const {
  const auto block = static_cast<std::size_t>(shape_.block);
  require_length(values.size(), shape_.elements, "values");
  require_length(by_key.size(), static_cast<std::int64_t>(keys_.size() * block), "values by key");
  float* to = by_key.data();
  if (block == 1) {
    for (const std::uint32_t key : keys_) *to++ = values[key];
    return;
  }
  for (const std::uint32_t key : keys_) {
    const std::size_t begin = key * block, length = std::min(block, values.size() - begin);
    std::copy_n(values.data() + begin, length, to);
    std::fill(to + length, to + block, 0.0F);
    to += block;
  }
}

void KeyIndex::spread(std::span<const float> by_key, std::span<float> out) const {
  const auto block = static_cast<std::size_t>(shape_.block);
  require_length(out.size(), shape_.elements, "values");
  require_length(by_key.size(), static_cast<std::int64_t>(keys_.size() * block), "values by key");
  const float* from = by_key.data();
  if (block == 1) {
    for (const std::uint32_t key : keys_) out[key] = *from++;
    return;
  }
  for (const std::uint32_t key : keys_) {
    const std::size_t begin = key * block;
    std::copy_n(from, std::min(block, out.size() - begin), out.data() + begin);
    from += block;
  }
}

}  // namespace dear::codec
