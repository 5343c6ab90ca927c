#include "dear/codec/sketch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>

#include <fmt/format.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "dear/base/error.h"
#include "dear/codec/bloom.h"
#include "dear/codec/peel.h"
#include "dear/codec/sketch_scan.h"

namespace dear::codec {
namespace {

// Values looked at together: they, and the keys found in them, stay in the first-level cache.
constexpr std::int64_t kPart = 4096;
// Keys whose rows are asked of memory before the first of them is needed.
constexpr std::int64_t kAhead = 64;
// A group with fewer rows than this for each key is not worth a try: half its keys would stay.
constexpr double kHopeless = 1.2;

#if defined(__SSE2__)
std::int64_t nearest(double value) { return _mm_cvtsd_si64(_mm_set_sd(value)); }
#else
std::int64_t nearest(double value) { return std::llrint(value); }
#endif

template <typename T>
T held(float value, double scale) {
  if constexpr (std::is_floating_point_v<T>) {
    return value;
  } else {
    return static_cast<T>(nearest(static_cast<double>(value) * scale));
  }
}

// Bits that the sum of all ranks may take, without sign.
int bits_for_sums(bool wide) { return wide ? 62 : 30; }
int bits_of(int ranks) { return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))); }

// The bits of the largest magnitude that a rank can hold at a scale.
template <typename T>
std::uint32_t most_bits(int scale, int ranks) {
  if constexpr (std::is_floating_point_v<T>) {
    return kInfinityBits - 1;
  } else {
    if (scale == kNoScale) return 0;
    const int exponent = bits_for_sums(sizeof(T) == 8) - bits_of(ranks) - scale;
    if (exponent > 127) return kInfinityBits - 1;
    return std::bit_cast<std::uint32_t>(static_cast<float>(std::ldexp(1.0, exponent)));
  }
}

template <typename Int>
void unscale_all(std::span<const Int> sums, int scale, std::span<float> values) {
  const double factor = scale == kNoScale ? 0 : std::ldexp(1.0, -scale);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    // The first conversion rounds; the product is exact, and so is the second unless the result is a
    // denormal.
    values[i] = static_cast<float>(static_cast<double>(static_cast<float>(sums[i])) * factor);
  }
}

// Calls what(begin of the part, its length) for the bits of `bits` that are set.
template <typename Found>
void for_each_bit(const std::uint64_t* bits, std::int64_t words, const Found& found) {
  for (std::int64_t word = 0; word < words; ++word) {
    for (std::uint64_t rest = bits[word]; rest != 0; rest &= rest - 1)
      found(64 * word + std::countr_zero(rest));
  }
}

}  // namespace

int scale_for(DType rows, int exponent, int ranks) {
  if (rows == DType::f32) return 0;
  if (exponent == IndexHeader::kNoExponent) return kNoScale;
  const bool wide = rows == DType::i64;
  return bits_for_sums(wide) - bits_of(ranks) - exponent - (wide ? 8 : 1);
}

void unscale(std::span<const std::int64_t> sums, int scale, std::span<float> values) {
  unscale_all(sums, scale, values);
}
void unscale(std::span<const std::int32_t> sums, int scale, std::span<float> values) {
  unscale_all(sums, scale, values);
}

Sketch::Sketch(const SketchShape& shape) : shape_(shape), hash_(shape.seed) {
  const bool sizes = shape.elements >= 0 && shape.block > 0 && shape.ranks > 0 && shape.groups > 0 &&
                     shape.range > 0 && shape.bloom_lines >= 0 && shape.bloom_bits >= 0;
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  if (!sizes || shape.keys() >= kMost || 3 * shape.range > std::int64_t{1} << KeyHash::kRowBits ||
      shape.groups > 65'535 / shape.ranks || groups() * shape.rows_per_group() >= kMost ||
      shape.bloom_bits > BloomFilter<std::uint64_t>::kMostBits || shape.bloom_lines >= kMost / 8) {
    throw ConfigError(
        fmt::format("a sketch of {} elements in blocks of {}, with {} groups of 3 x {} rows for each of {} "
                    "ranks, cannot be made: choose another block, or send these elements dense",
                    shape.elements, shape.block, shape.groups, shape.range, shape.ranks));
  }
  const std::int64_t keys_at_once = std::max<std::int64_t>(1, kPart / shape.block);
  found_.resize(static_cast<std::size_t>(keys_at_once));
  bits_.resize(static_cast<std::size_t>((keys_at_once * shape.block + 63) / 64));
  count_.resize(static_cast<std::size_t>(groups()));
}

// Adds `count` keys of found_. Rows lie anywhere, so all of a few keys are asked of memory first.
template <typename T>
void Sketch::add(std::span<const float> values, std::int64_t count, double scale, std::span<T> rows) const {
  const auto groups_of_all = static_cast<std::uint32_t>(groups());
  const auto range = static_cast<std::uint32_t>(shape_.range);
  const auto block = static_cast<std::size_t>(shape_.block);
  const auto per_group = static_cast<std::uint32_t>(shape_.rows_per_group());
  std::array<std::array<std::uint32_t, 3>, kAhead> ahead;
  for (std::int64_t begin = 0; begin < count; begin += kAhead) {
    const auto some = static_cast<std::size_t>(std::min(kAhead, count - begin));
    const std::uint32_t* const keys = found_.data() + begin;
    for (std::size_t i = 0; i < some; ++i) {
      const std::uint64_t base = hash_.base(keys[i]);
      const std::uint32_t first = KeyHash::group(base, groups_of_all) * per_group;
      ahead[i] = hash_.rows(base, range);
      for (std::uint32_t& row : ahead[i]) {
        row += first;
        __builtin_prefetch(rows.data() + row * block, 1);
      }
    }
    for (std::size_t i = 0; i < some; ++i) {
      const float* const from = values.data() + keys[i] * block;
      if (block == 1) {
        const T value = held<T>(*from, scale);
        for (const std::uint32_t row : ahead[i]) rows[row] = sum_of(rows[row], value);
        continue;
      }
      const std::size_t length = std::min(block, values.size() - keys[i] * block);
      for (const std::uint32_t row : ahead[i]) {
        T* const to = rows.data() + row * block;
        for (std::size_t lane = 0; lane < length; ++lane)
          to[lane] = sum_of(to[lane], held<T>(from[lane], scale));
      }
    }
  }
}

template <typename T>
Encoded Sketch::encode(std::span<const float> values, int rank, int scale, std::span<std::uint64_t> index,
                       std::span<T> rows) {
  static const ScanKernel kScan = find_scan();
  const std::int64_t block = shape_.block;
  const bool has_bloom = shape_.bloom_lines > 0;
  std::uint64_t* const body = index.data() + index_header_words(shape_.ranks);
  if (block > 1 || has_bloom) std::fill(body, index.data() + index.size(), 0);
  std::fill(rows.begin(), rows.end(), T{});
  const BloomFilter<std::uint64_t> bloom(body, static_cast<std::uint32_t>(shape_.bloom_lines),
                                         shape_.bloom_bits, hash_);
  const std::uint32_t most = most_bits<T>(scale, shape_.ranks);
  const double factor = scale == kNoScale ? 0 : std::ldexp(1.0, scale);
  const auto part = static_cast<std::int64_t>(found_.size()) * block;
  Encoded encoded;
  for (std::int64_t begin = 0; begin < shape_.elements; begin += part) {
    const std::int64_t length = std::min(part, shape_.elements - begin);
    std::uint64_t* const bits = block == 1 && !has_bloom ? body + begin / 64 : bits_.data();
    const std::uint32_t largest = kScan(values.data() + begin, length, bits);
    encoded.met.largest_bits = std::max(encoded.met.largest_bits, largest);
    encoded.met.not_finite |= largest >= kInfinityBits;
    encoded.met.overflow |= largest > most && largest < kInfinityBits;
    if (largest > most || largest == 0) continue;
    std::int64_t count = 0;
    const auto first = static_cast<std::uint32_t>(begin / block);
    const std::int64_t words = (length + 63) / 64;
    if (block == 1) {
      for_each_bit(bits, words, [&](std::int64_t bit) {
        found_[static_cast<std::size_t>(count++)] = first + static_cast<std::uint32_t>(bit);
      });
    } else {
      std::uint32_t next = first;  // the first key that is not found yet
      for_each_bit(bits, words, [&](std::int64_t bit) {
        const std::uint32_t key = first + static_cast<std::uint32_t>(bit / block);
        if (key < next) return;
        found_[static_cast<std::size_t>(count++)] = key;
        next = key + 1;
      });
    }
    encoded.keys += count;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t key = found_[static_cast<std::size_t>(i)];
      if (has_bloom) {
        bloom.add(key);
      } else if (block > 1) {
        body[key / 64] |= std::uint64_t{1} << (key % 64);
      }
    }
    add<T>(values, count, factor, rows);
  }
  write_header(index, shape_.ranks, rank, encoded.met);
  return encoded;
}

// A bitmap of the keys that the index has, or may have.
std::span<const std::uint64_t> Sketch::candidates_in(std::span<const std::uint64_t> index) {
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

Reading Sketch::read(std::span<const std::uint64_t> index) {
  Reading reading{.header = read_header(index, shape_.ranks)};
  const std::span<const std::uint64_t> candidates = candidates_in(index);
  std::int64_t keys = 0;
  for (const std::uint64_t word : candidates) keys += std::popcount(word);
  reading.keys = keys;
  keys_.resize(static_cast<std::size_t>(keys));
  group_of_.resize(static_cast<std::size_t>(keys));
  std::fill(count_.begin(), count_.end(), 0);
  const auto groups_of_all = static_cast<std::uint32_t>(groups());
  std::size_t at = 0;
  for_each_bit(candidates.data(), static_cast<std::int64_t>(candidates.size()), [&](std::int64_t bit) {
    const auto key = static_cast<std::uint32_t>(bit);
    const std::uint32_t group = KeyHash::group(hash_.base(key), groups_of_all);
    keys_[at] = key;
    group_of_[at++] = static_cast<std::uint16_t>(group);
    ++count_[group];
  });
  const auto rows = static_cast<double>(shape_.rows_per_group());
  for (const std::int64_t count : count_) {
    // A few keys get away with fewer rows.
    reading.fits &= rows >= (count < 1000 ? 1.0 : kHopeless) * static_cast<double>(count);
  }
  return reading;
}

std::int64_t Sketch::keys_of(int owner) const {
  const auto first = count_.begin() + owner * shape_.groups;
  std::int64_t keys = 0;
  for (auto group = first; group != first + shape_.groups; ++group) keys += *group;
  return keys;
}

template <typename T>
Peeled Sketch::peel(int owner, std::span<T> rows, std::span<T> values) {
  const auto own = static_cast<std::uint32_t>(shape_.groups);
  const std::uint32_t first = static_cast<std::uint32_t>(owner) * own;
  const auto range = static_cast<std::uint32_t>(shape_.range);
  rows_of_.resize(static_cast<std::size_t>(keys_of(owner)));
  std::vector<std::uint64_t*> end_of(own);  // of what each group has so far
  std::uint64_t* place = rows_of_.data();
  for (std::uint32_t group = 0; group < own; ++group) {
    end_of[group] = place;
    place += count_[first + group];
  }
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const std::uint32_t group = group_of_[i] - first;
    if (group < own) *end_of[group]++ = packed_rows(hash_.rows(hash_.base(keys_[i]), range));
  }
  Peeled result;
  std::size_t done = 0;
  const auto row_count = static_cast<std::size_t>(shape_.rows_per_group());
  const auto block = static_cast<std::size_t>(shape_.block);
  for (std::uint32_t group = 0; group < own; ++group) {
    const std::span<const std::uint64_t> keys(rows_of_.data() + done, end_of[group]);
    T* const sums = rows.data() + group * row_count * block;
    T* const to = values.data() + done * block;
    const PeeledGroup one = block == 1 ? peel_group<1>(keys, row_count, shape_.block, sums, to, memory_)
                                       : peel_group<0>(keys, row_count, shape_.block, sums, to, memory_);
    result.rounds = std::max(result.rounds, one.rounds);
    result.unpeeled += static_cast<std::int64_t>(keys.size()) - one.peeled;
    done += keys.size();
  }
  return result;
}

void Sketch::spread(std::span<const std::span<const float>> by_owner, std::span<float> out) const {
  std::vector<const float*> next(count_.size());
  for (std::size_t owner = 0; owner < by_owner.size(); ++owner) {
    const float* from = by_owner[owner].data();
    for (std::int64_t group = 0; group < shape_.groups; ++group) {
      const std::size_t number =
          owner * static_cast<std::size_t>(shape_.groups) + static_cast<std::size_t>(group);
      next[number] = from;
      from += count_[number] * shape_.block;
    }
  }
  const auto block = static_cast<std::size_t>(shape_.block);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const float*& from = next[group_of_[i]];
    const std::size_t begin = keys_[i] * block;
    if (block == 1) {
      out[begin] = *from;
    } else {
      std::copy_n(from, std::min(block, out.size() - begin), out.data() + begin);
    }
    from += block;
  }
}

#define DEAR_SKETCH_OF(T)                                                                        \
  template Encoded Sketch::encode<T>(std::span<const float>, int, int, std::span<std::uint64_t>, \
                                     std::span<T>);                                              \
  template Peeled Sketch::peel<T>(int, std::span<T>, std::span<T>);
DEAR_SKETCH_OF(float)
DEAR_SKETCH_OF(std::int32_t)
DEAR_SKETCH_OF(std::int64_t)
#undef DEAR_SKETCH_OF

}  // namespace dear::codec
