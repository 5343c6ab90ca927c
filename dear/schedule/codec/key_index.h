#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dear/schedule/codec/hash.h"
#include "dear/schedule/codec/index.h"
#include "dear/schedule/codec/sketch_shape.h"

namespace dear::codec {

// The keys of a flat buffer: blocks of consecutive elements that are not all zero, as a bitmap or a Bloom
// filter, behind a header (index.h). Ranks combine indices by bitwise or.
//
// [Note: values by key] Once a rank has the combined index it knows which blocks the union has. So it sends
// its values of these blocks, one behind the other, and they add up as dense gradients do: each element to
// the same bits where ranks are added in an order that does not depend on the place of an element (on two
// ranks, over shm, and with `reproducible`). Zeros of a block, or of a false positive of a Bloom filter, come
// out as zeros (-0.0 of a block that did not travel as +0.0), NaN and infinity where they were, and no
// magnitude is too large or too small. A sketch (sketch.h) sends values that
// do not wait for the index, and pays for it with rows and rounding.
//
// Keeps its working memory. One thread at a time. ConfigError where a span has not the length that the shape
// says.
class KeyIndex {
 public:
  // Groups and range of the shape do not matter. ConfigError for a shape whose sizes are not positive, or of
  // 2^32 keys or more.
  explicit KeyIndex(const SketchShape& shape);
  [[nodiscard]] const SketchShape& shape() const { return shape_; }

  // Writes all of `index` (shape().index_words()) but its header, which is whoever calls' to write
  // (write_header()). `found` is called for some consecutive values at a time, with the bits of their largest
  // magnitude (Kernels::scan) and their keys. Returns what was met, without overflow.
  using Found = std::function<void(std::uint32_t largest_bits, std::span<const std::uint32_t> keys)>;
  Met encode(std::span<const float> values, std::span<std::uint64_t> index, const Found& found = {});

  // Takes the combined index. MismatchError where it names keys that do not exist, so that it is the index of
  // another shape.
  IndexHeader read(std::span<const std::uint64_t> index);
  // The keys of the union, in ascending order; with a Bloom filter false positives too.
  [[nodiscard]] std::span<const std::uint32_t> keys() const { return keys_; }
  // keys().size() blocks, one behind the other: what travels by key. Elements beyond the last are zero.
  void gather(std::span<const float> values, std::span<float> by_key) const;
  // Writes them into `out`, which is zero elsewhere.
  void spread(std::span<const float> by_key, std::span<float> out) const;

 private:
  [[nodiscard]] std::span<const std::uint64_t> candidates_in(std::span<const std::uint64_t> index);
  std::int64_t find_keys(const std::uint64_t* bits, std::int64_t begin, std::int64_t length);

  SketchShape shape_;
  KeyHash hash_;
  std::vector<std::uint32_t> found_;  // keys of a part of the values
  std::vector<std::uint64_t> bits_;   // which values of the part are not zero
  std::vector<std::uint32_t> keys_;
  std::vector<std::uint64_t> candidates_;  // with a Bloom filter: a bitmap of what it may have
};

// ConfigError that names `what` unless as many were given as a shape says.
void require_length(std::size_t found, std::int64_t wanted, const char* what);

}  // namespace dear::codec
