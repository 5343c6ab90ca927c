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
// Keys hashed at once.
constexpr std::size_t kBatch = 512;
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

void require(std::size_t found, std::int64_t wanted, const char* what) {
  if (static_cast<std::int64_t>(found) != wanted) {
    throw ConfigError(fmt::format("a sketch of this shape has {} {}, and was given {}", wanted, what, found));
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

// Calls found(number) for each bit that is set, in ascending order.
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
  if (!sizes || shape.keys() >= kMost || shape.rows_per_group() > 1 << 16 ||
      shape.groups > 65'535 / shape.ranks || groups() * shape.rows_per_group() >= kMost ||
      shape.bloom_bits > BloomFilter<std::uint64_t>::kMostBits || shape.bloom_lines >= kMost / 8) {
    throw ConfigError(
        fmt::format("a sketch of {} elements in blocks of {}, with {} groups of 3 x {} rows for each of {} "
                    "ranks, cannot be made: choose another block, or send these elements dense",
                    shape.elements, shape.block, shape.groups, shape.range, shape.ranks));
  }
  const std::int64_t keys_at_once = std::max<std::int64_t>(1, kPart / shape.block);
  found_.resize(static_cast<std::size_t>(keys_at_once));
  found_groups_.resize(found_.size());
  found_rows_.resize(found_.size());
  bits_.resize(static_cast<std::size_t>((keys_at_once * shape.block + 63) / 64));
  count_.resize(static_cast<std::size_t>(groups()));
}

// Adds `count` keys of found_.
template <typename T>
void Sketch::add(std::span<const float> values, std::int64_t count, double scale, std::span<T> rows) {
  const HashKernels& hash = *find_hash();
  hash.groups(hash_, found_.data(), count, static_cast<std::uint32_t>(groups()), found_groups_.data());
  hash.rows(hash_, found_.data(), count, static_cast<std::uint32_t>(shape_.range), found_rows_.data());
  const auto found = static_cast<std::size_t>(count);
  const auto per_group = static_cast<std::size_t>(shape_.rows_per_group());
  if (shape_.block == 1) {
    const std::uint32_t* const keys = found_.data();
    const std::uint16_t* const group = found_groups_.data();
    const PackedRows* const places = found_rows_.data();
    for (std::size_t i = 0; i < found; ++i) {
      const T value = held<T>(values[keys[i]], scale);
      T* const first = rows.data() + group[i] * per_group;
      for (int which = 0; which < 3; ++which) {
        T& row = first[row_of(places[i], which)];
        row = sum_of(row, value);
      }
    }
    return;
  }
  const auto block = static_cast<std::size_t>(shape_.block);
  for (std::size_t i = 0; i < found; ++i) {
    const float* const from = values.data() + found_[i] * block;
    T* const first = rows.data() + found_groups_[i] * per_group * block;
    const std::size_t length = std::min(block, values.size() - found_[i] * block);
    for (int which = 0; which < 3; ++which) {
      T* const to = first + row_of(found_rows_[i], which) * block;
      for (std::size_t lane = 0; lane < length; ++lane)
        to[lane] = sum_of(to[lane], held<T>(from[lane], scale));
    }
  }
}

// Lists in found_ the keys of [begin, begin + length) in which some bit is set; returns how many.
std::int64_t Sketch::find_keys(const std::uint64_t* bits, std::int64_t begin, std::int64_t length) {
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

template <typename T>
Encoded Sketch::encode(std::span<const float> values, int rank, int scale, std::span<std::uint64_t> index,
                       std::span<T> rows) {
  static const ScanKernel kScan = find_scan();
  require(values.size(), shape_.elements, "values");
  require(index.size(), shape_.index_words(), "words of the index");
  require(rows.size(), shape_.values(), "values in rows");
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
    const std::int64_t count = find_keys(bits, begin, length);
    encoded.keys += count;
    if (has_bloom || block > 1) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t key = found_[static_cast<std::size_t>(i)];
        if (has_bloom) {
          bloom.add(key);
        } else {
          body[key / 64] |= std::uint64_t{1} << (key % 64);
        }
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
  require(index.size(), shape_.index_words(), "words of the index");
  Reading reading{.header = read_header(index, shape_.ranks)};
  const std::span<const std::uint64_t> candidates = candidates_in(index);
  std::int64_t keys = 0;
  for (const std::uint64_t word : candidates) keys += std::popcount(word);
  reading.keys = keys;
  keys_.resize(static_cast<std::size_t>(keys));
  group_of_.resize(static_cast<std::size_t>(keys));
  std::fill(count_.begin(), count_.end(), 0);
  std::uint32_t* key = keys_.data();
  for_each_bit(candidates.data(), static_cast<std::int64_t>(candidates.size()),
               [&](std::int64_t bit) { *key++ = static_cast<std::uint32_t>(bit); });
  find_hash()->groups(hash_, keys_.data(), keys, static_cast<std::uint32_t>(groups()), group_of_.data());
  for (const std::uint16_t group : group_of_) ++count_[group];
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
  require(rows.size(), shape_.values_per_owner(), "values in rows");
  const auto own = static_cast<std::uint32_t>(shape_.groups);
  const std::uint32_t first = static_cast<std::uint32_t>(owner) * own;
  const auto range = static_cast<std::uint32_t>(shape_.range);
  rows_of_.resize(static_cast<std::size_t>(keys_of(owner)));
  std::vector<PackedRows*> end_of(own);  // of what each group has so far
  PackedRows* place = rows_of_.data();
  for (std::uint32_t group = 0; group < own; ++group) {
    end_of[group] = place;
    place += count_[first + group];
  }
  std::array<std::uint32_t, kBatch> own_keys;
  std::array<std::uint16_t, kBatch> own_groups;
  std::array<PackedRows, kBatch> own_rows;
  const HashKernels& hash = *find_hash();
  for (std::size_t begin = 0; begin < keys_.size(); begin += kBatch) {
    const std::size_t end = std::min(begin + kBatch, keys_.size());
    std::size_t some = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t group = group_of_[i] - first;
      own_keys[some] = keys_[i];
      own_groups[some] = static_cast<std::uint16_t>(group);
      some += group < own ? 1 : 0;
    }
    hash.rows(hash_, own_keys.data(), static_cast<std::int64_t>(some), range, own_rows.data());
    for (std::size_t i = 0; i < some; ++i) *end_of[own_groups[i]]++ = own_rows[i];
  }
  Peeled result;
  std::size_t done = 0;
  const auto row_count = static_cast<std::size_t>(shape_.rows_per_group());
  const auto block = static_cast<std::size_t>(shape_.block);
  for (std::uint32_t group = 0; group < own; ++group) {
    const std::span<const PackedRows> keys(rows_of_.data() + done, end_of[group]);
    T* const sums = rows.data() + group * row_count * block;
    T* const to = values.data() + done * block;
    const PeeledGroup one = block == 1 ? peel_group<1>(keys, row_count, block, sums, to, memory_)
                                       : peel_group<0>(keys, row_count, block, sums, to, memory_);
    result.rounds = std::max(result.rounds, one.rounds);
    result.unpeeled += static_cast<std::int64_t>(keys.size()) - one.peeled;
    done += keys.size();
  }
  return result;
}

void Sketch::spread(std::span<const std::span<const float>> by_owner, std::span<float> out) const {
  require(by_owner.size(), shape_.ranks, "owners");
  require(out.size(), shape_.elements, "values");
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
