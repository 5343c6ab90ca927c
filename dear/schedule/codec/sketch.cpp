#include "dear/schedule/codec/sketch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>

#include <fmt/format.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/kernels.h"
#include "dear/schedule/codec/peel.h"

namespace dear::codec {
namespace {

// Keys hashed at once.
constexpr std::size_t kBatch = 512;
// A group with fewer rows than this for each key is not worth a try: half its keys would stay.
constexpr double kHopeless = 1.2;

#if defined(__SSE2__)
std::int64_t nearest(double value) { return _mm_cvtsd_si64(_mm_set_sd(value)); }
#else
std::int64_t nearest(double value) { return std::llrint(value); }
#endif

// Clears `exact` where fixed point loses bits of the value.
template <typename T>
T held(float value, double scale, bool& exact) {
  if constexpr (std::is_floating_point_v<T>) {
    return value;
  } else {
    const double scaled = static_cast<double>(value) * scale;  // exact: the scale is a power of two
    const std::int64_t integer = nearest(scaled);
    exact &= static_cast<double>(integer) == scaled;
    return static_cast<T>(integer);
  }
}

double factor_of(int scale) { return scale == kNoScale ? 0 : std::ldexp(1.0, scale); }

// Bits that the sum of all ranks may take, without sign.
int bits_for_sums(bool wide) { return wide ? 62 : 30; }
int bits_of(int ranks) { return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))); }

// Keys that may meet in a row, of which there are more rows than keys.
constexpr int kBitsOfKeysInARow = 6;

// The bits of the largest magnitude that a rank can hold at a scale, such that no sum of a row overflows.
template <typename T>
std::uint32_t most_bits(int scale, int ranks) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<std::uint32_t>(std::ldexp(1.0F, 127 - kBitsOfKeysInARow - bits_of(ranks)));
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

}  // namespace

int largest_scale(DType rows, int exponent, int ranks) {
  if (rows == DType::f32) return 0;
  if (exponent == IndexHeader::kNoExponent) return kNoScale;
  return bits_for_sums(rows == DType::i64) - bits_of(ranks) - exponent;
}

int scale_for(DType rows, int exponent, int ranks) {
  const int most = largest_scale(rows, exponent, ranks);
  if (rows == DType::f32 || most == kNoScale) return most;
  return most - (rows == DType::i64 ? 8 : 1);
}

bool hold(std::span<const float> values, int scale, std::span<std::int64_t> integers) {
  const double factor = factor_of(scale);
  bool exact = true;
  for (std::size_t i = 0; i < values.size(); ++i) integers[i] = held<std::int64_t>(values[i], factor, exact);
  return exact;
}

void unscale(std::span<const std::int64_t> sums, int scale, std::span<float> values) {
  unscale_all(sums, scale, values);
}
void unscale(std::span<const std::int32_t> sums, int scale, std::span<float> values) {
  unscale_all(sums, scale, values);
}

Sketch::Sketch(const SketchShape& shape) : shape_(shape), hash_(shape.seed), index_(shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  if (shape.groups < 1 || shape.range < 1 || shape.rows_per_group() > 1 << 16 ||
      shape.groups > 65'535 / shape.ranks || groups() * shape.rows_per_group() >= kMost) {
    throw ConfigError(
        fmt::format("a sketch of {} elements in blocks of {}, with {} groups of 3 x {} rows for each of {} "
                    "ranks, cannot be made: choose another block, or send these elements dense",
                    shape.elements, shape.block, shape.groups, shape.range, shape.ranks));
  }
  count_.resize(static_cast<std::size_t>(groups()));
}

// Adds the blocks of some keys; returns whether the rows hold all of their values exactly.
template <typename T>
bool Sketch::add(std::span<const float> values, std::span<const std::uint32_t> keys, double scale,
                 std::span<T> rows) {
  const Kernels& hash = kernels();
  const auto count = std::ssize(keys);
  groups_.resize(keys.size());
  places_.resize(keys.size());
  hash.groups(hash_, keys.data(), count, static_cast<std::uint32_t>(groups()), groups_.data());
  hash.rows(hash_, keys.data(), count, static_cast<std::uint32_t>(shape_.range), places_.data());
  const auto per_group = static_cast<std::size_t>(shape_.rows_per_group());
  bool exact = true;
  if (shape_.block == 1) {
    const std::uint16_t* const group = groups_.data();
    const PackedRows* const places = places_.data();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const T value = held<T>(values[keys[i]], scale, exact);
      T* const first = rows.data() + group[i] * per_group;
      for (int which = 0; which < 3; ++which) {
        T& row = first[row_of(places[i], which)];
        row = sum_of(row, value);
      }
    }
    return exact;
  }
  const auto block = static_cast<std::size_t>(shape_.block);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const float* const from = values.data() + keys[i] * block;
    T* const first = rows.data() + groups_[i] * per_group * block;
    const std::size_t length = std::min(block, values.size() - keys[i] * block);
    for (int which = 0; which < 3; ++which) {
      T* const to = first + row_of(places_[i], which) * block;
      for (std::size_t lane = 0; lane < length; ++lane)
        to[lane] = sum_of(to[lane], held<T>(from[lane], scale, exact));
    }
  }
  return exact;
}

template <typename T>
Encoded Sketch::encode(std::span<const float> values, int rank, int scale, std::span<std::uint64_t> index,
                       std::span<T> rows) {
  require_length(rows.size(), shape_.values(), "values in rows");
  std::fill(rows.begin(), rows.end(), T{});
  const std::uint32_t most = most_bits<T>(scale, shape_.ranks);
  const double factor = factor_of(scale);
  Encoded encoded;
  bool overflow = false, exact = true;
  encoded.met = index_.encode(values, index, [&](std::uint32_t largest, std::span<const std::uint32_t> keys) {
    encoded.keys += std::ssize(keys);
    overflow |= largest > most && largest < kInfinityBits;
    if (largest <= most) exact &= add<T>(values, keys, factor, rows);
  });
  encoded.met.overflow = overflow;
  encoded.met.inexact = !exact;
  write_header(index, shape_.ranks, rank, encoded.met);
  return encoded;
}

Reading Sketch::read(std::span<const std::uint64_t> index) {
  Reading reading{.header = index_.read(index), .keys = std::ssize(index_.keys())};
  group_of_.resize(index_.keys().size());
  std::fill(count_.begin(), count_.end(), 0);
  kernels().groups(hash_, index_.keys().data(), reading.keys, static_cast<std::uint32_t>(groups()),
                   group_of_.data());
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
  require_length(rows.size(), shape_.values_per_owner(), "values in rows");
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
  const Kernels& hash = kernels();
  const std::span<const std::uint32_t> keys = index_.keys();
  for (std::size_t begin = 0; begin < keys.size(); begin += kBatch) {
    const std::size_t end = std::min(begin + kBatch, keys.size());
    std::size_t some = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t group = group_of_[i] - first;
      own_keys[some] = keys[i];
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
  require_length(by_owner.size(), shape_.ranks, "owners");
  require_length(out.size(), shape_.elements, "values");
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
  const std::span<const std::uint32_t> keys = index_.keys();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const float*& from = next[group_of_[i]];
    const std::size_t begin = keys[i] * block;
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
