#include "dear/schedule/codec/sketch_shape.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "dear/schedule/codec/bloom.h"
#include "dear/schedule/codec/index.h"

namespace dear::codec {
namespace {

// Keys of a group whose counters and rows stay in a second-level cache while they are peeled. The more there
// are, the less their number varies between groups, and the more seldom two keys share all their rows and
// stay: in about one of 4000 groups of this size.
constexpr double kKeysPerGroup = 32'768;
constexpr std::int64_t kMostRange = (1 << 16) / 3;
constexpr int kLineBits = 512;

// Peeling succeeds above 1.222 rows for each key, with some more for groups of a few thousand: the rows that
// a group needs when it gets four standard deviations more keys than it should.
double rows_for(double room, double keys, bool alone) {
  const double unlucky = alone ? 0 : 1.25 * (keys + 4 * std::sqrt(keys));
  return std::max(room_for(room, keys) * keys, unlucky);
}

// Is of a filter with `load` keys for each line. The number of keys in a line follows Poisson's law.
double false_positives_at(double load, int bits) {
  double probability = std::exp(-load), rate = 0;
  for (int keys = 0; keys < 40 + 4 * load; ++keys) {
    const double clear = std::pow(1 - 1.0 / kLineBits, keys * bits);
    rate += probability * std::pow(1 - clear, bits);
    probability *= load / (keys + 1);
  }
  return rate;
}

struct Bloom {
  std::int64_t lines = 0;
  int bits = 0;
  double candidates = 0;  // keys and false positives
};

// The filter for which filter and rows of the candidates take the fewest bytes. Beside the optimum in closed
// form, a rate of 2.081 density / (32 room), it knows that lines differ in load.
Bloom bloom_for(double keys, double all_keys, double bytes_per_key) {
  Bloom best;
  double least = 0;
  for (double bits_per_key = 4; bits_per_key < 32; bits_per_key += 0.5) {
    const double lines = std::max(1.0, std::ceil(keys * bits_per_key / kLineBits));
    const int bits = std::clamp(static_cast<int>(std::lround(bits_per_key * 0.69)), 1,
                                BloomFilter<std::uint64_t>::kMostBits);
    const double candidates = keys + (all_keys - keys) * false_positives_at(keys / lines, bits);
    const double bytes = 64 * lines + bytes_per_key * candidates;
    if (best.bits == 0 || bytes < least) {
      least = bytes;
      best = {.lines = static_cast<std::int64_t>(lines), .bits = bits, .candidates = candidates};
    }
  }
  return best;
}

// Rows for so many candidates; none where they travel by key.
void make_rows(SketchShape& shape, double room, double candidates) {
  if (room == 0) {
    shape.range = 0;
    return;
  }
  const double each = std::max(1.0, candidates / shape.ranks);
  // More of them where so much room is asked for that rows would be too many for one.
  const double least = std::ceil(1.1 * room * each / (3 * kMostRange));
  shape.groups =
      std::clamp<std::int64_t>(std::llround(std::max(each / kKeysPerGroup, least)), 1, 65'535 / shape.ranks);
  const bool alone = shape.groups * shape.ranks == 1;
  const double rows = rows_for(room, each / static_cast<double>(shape.groups), alone);
  shape.range = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(rows / 3)), 1, kMostRange);
}

// Returns the bytes of an index, and of rows or of the blocks of so many candidates.
double bytes_of(const SketchShape& shape, double candidates, DType rows) {
  const double values =
      shape.range > 0 ? static_cast<double>(shape.values()) : candidates * static_cast<double>(shape.block);
  return 8 * static_cast<double>(shape.index_words()) + values * static_cast<double>(size_of(rows));
}

DType rows_of(const SketchSpec& spec) { return spec.exact ? DType::i64 : DType::f32; }

}  // namespace

std::int64_t SketchShape::index_words() const {
  return index_header_words(ranks) + (bloom_lines > 0 ? 8 * bloom_lines : (keys() + 63) / 64);
}

double room_for(double room, double keys) {
  if (keys >= 1000) return room;
  return std::max(room, keys >= 200 ? 1.5 : 2.0);
}

SketchShape shape_for(const SketchSpec& spec, std::int64_t elements, int ranks, double keys,
                      std::uint64_t seed) {
  SketchShape bitmap{
      .elements = elements, .block = std::max<std::int64_t>(spec.block, 1), .ranks = ranks, .seed = seed};
  const auto all = static_cast<double>(bitmap.keys());
  keys = std::clamp(keys, 1.0, std::max(1.0, all));
  SketchShape bloom = bitmap;
  make_rows(bitmap, spec.room, keys);
  if (spec.index == SketchSpec::Index::bitmap) {
    return bitmap;
  }
  const DType rows = rows_of(spec);
  const double sent_per_key = spec.room == 0 ? 1 : spec.room;
  const Bloom filter = bloom_for(keys, all, sent_per_key * static_cast<double>(bitmap.block * size_of(rows)));
  bloom.bloom_lines = filter.lines;
  bloom.bloom_bits = filter.bits;
  make_rows(bloom, spec.room, filter.candidates);
  const bool smaller = 5 * bytes_of(bloom, filter.candidates, rows) < 4 * bytes_of(bitmap, keys, rows);
  return spec.index == SketchSpec::Index::bloom || smaller ? bloom : bitmap;
}

double false_positives(const SketchShape& shape, double keys) {
  return shape.bloom_lines == 0
             ? 0
             : false_positives_at(keys / static_cast<double>(shape.bloom_lines), shape.bloom_bits);
}

double bytes_sent(const SketchShape& shape, double keys, DType rows) {
  const double others = (shape.ranks - 1.0) / shape.ranks;
  const double recovered = keys + (static_cast<double>(shape.keys()) - keys) * false_positives(shape, keys);
  const double blocks = recovered * static_cast<double>(shape.block),
               index = 2 * 8 * static_cast<double>(shape.index_words());
  const auto size = static_cast<double>(size_of(rows));
  if (shape.range == 0) return others * (index + 2 * size * blocks);
  return others * (index + static_cast<double>(shape.values()) * size + 4 * blocks);
}

double dense_bytes_sent(std::int64_t elements, int ranks) {
  return (ranks - 1.0) / ranks * 2 * 4 * static_cast<double>(elements);
}

bool pays(const SketchSpec& spec, std::int64_t elements, int ranks, double density) {
  if (elements == 0 || density > spec.most_density) {
    return false;
  }
  SketchShape shape{.elements = elements, .block = std::max<std::int64_t>(spec.block, 1)};
  const double keys = density * static_cast<double>(shape.keys());
  shape = shape_for(spec, elements, ranks, keys, 1);
  return bytes_sent(shape, keys, rows_of(spec)) < dense_bytes_sent(elements, ranks);
}

std::array<std::int64_t, 4> count_keys(std::span<const float> values) {
  std::array<std::int64_t, 4> keys{};
  for (std::size_t begin = 0; begin < values.size(); begin += 64) {
    std::uint64_t word = 0;
    const std::span<const float> part =
        values.subspan(begin, std::min<std::size_t>(64, values.size() - begin));
    for (std::size_t i = 0; i < part.size(); ++i) word |= std::uint64_t{part[i] != 0} << i;
    keys[0] += std::popcount(word);
    for (int quad = 0; quad < 16; ++quad) keys[1] += ((word >> (4 * quad)) & 0xf) != 0 ? 1 : 0;
    for (int part16 = 0; part16 < 4; ++part16) keys[2] += ((word >> (16 * part16)) & 0xffff) != 0 ? 1 : 0;
    keys[3] += word != 0 ? 1 : 0;
  }
  return keys;
}

std::int64_t choose_block(const SketchSpec& spec, std::int64_t elements, int ranks,
                          const std::array<std::int64_t, 4>& keys) {
  std::int64_t best = kBlocks[0];
  double least = 0;
  for (std::size_t i = 0; i < kBlocks.size(); ++i) {
    SketchSpec tried = spec;
    tried.block = kBlocks[i];
    const auto count = static_cast<double>(keys[i]);
    const double bytes = bytes_sent(shape_for(tried, elements, ranks, count, 1), count, rows_of(spec));
    if (i == 0 || bytes < least) {
      least = bytes;
      best = kBlocks[i];
    }
  }
  return best;
}

}  // namespace dear::codec
