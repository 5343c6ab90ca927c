#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dear/base/vocabulary/dtype.h"
#include "dear/schedule/codec/compression.h"

// How large a sketch (sketch.h) is made, and when one is worth it. Plain arithmetic on values that every rank
// has, so that all ranks decide alike.
namespace dear::codec {

// The sizes of a sketch, or of an index behind which values travel by key (key_index.h): the same on every
// rank.
struct SketchShape {
  std::int64_t elements = 0;     // of the flat buffer
  std::int64_t block = 1;        // consecutive elements that share a key; the last block may be shorter
  int ranks = 1;                 // each owns as many groups of keys as every other
  std::int64_t groups = 1;       // of each rank
  std::int64_t range = 1;        // rows in each of the three ranges of a group; 0 where values travel by key
  std::int64_t bloom_lines = 0;  // 64 bytes each; 0: the index is a bitmap of all keys
  int bloom_bits = 0;            // that a key sets in its line
  std::uint64_t seed = 1;

  [[nodiscard]] std::int64_t keys() const { return (elements + block - 1) / block; }
  [[nodiscard]] std::int64_t rows_per_group() const { return 3 * range; }
  // Values in the rows of one owner; those of owner q begin at q times as many.
  [[nodiscard]] std::int64_t values_per_owner() const { return groups * rows_per_group() * block; }
  [[nodiscard]] std::int64_t values() const { return ranks * values_per_owner(); }
  // 64-bit words of an index: its header (index.h), then bitmap or Bloom filter.
  [[nodiscard]] std::int64_t index_words() const;

  friend bool operator==(const SketchShape&, const SketchShape&) = default;
};

// The rows for each key of a group that is expected to have so many: what is asked for, from 1000 keys on; at
// least 1.5 below, and 2 below 200, where chance decides more.
double room_for(double room, double keys);

// The smallest shape that holds `keys` keys of all ranks' union with the room that is asked for. The block is
// that of the spec (0 counts as 1). An automatic index is a bitmap, unless a Bloom filter would make the
// whole sketch a fifth smaller: finding its keys takes a look at every key there is. Without room (0) it has
// no rows: values travel by key.
SketchShape shape_for(const SketchSpec& spec, std::int64_t elements, int ranks, double keys,
                      std::uint64_t seed);

// The share of other keys that a Bloom filter of the shape would take for its own `keys`.
double false_positives(const SketchShape& shape, double keys);

// Bytes that a rank sends where collectives send no more than they must: the all-reduce of the index, the
// reduce-scatter of rows of this type, and the all-gather of `keys` recovered blocks in fp32; by key both
// halves carry the blocks in this type. And of a dense reduce-scatter and all-gather in fp32.
double bytes_sent(const SketchShape& shape, double keys, DType rows);
double dense_bytes_sent(std::int64_t elements, int ranks);

// Whether a sketch of a union with this density (of keys) sends less than dense collectives would, and the
// density is not above what the spec allows.
bool pays(const SketchSpec& spec, std::int64_t elements, int ranks, double density);

// Blocks that choose_block() compares.
inline constexpr std::array<std::int64_t, 4> kBlocks = {1, 4, 16, 64};
// For each of them, how many keys would have an element that is not zero. Of the sum of all ranks' gradients,
// so that all ranks count the same.
std::array<std::int64_t, 4> count_keys(std::span<const float> values);
// Returns that with the fewest bytes.
std::int64_t choose_block(const SketchSpec& spec, std::int64_t elements, int ranks,
                          const std::array<std::int64_t, 4>& keys);

}  // namespace dear::codec
