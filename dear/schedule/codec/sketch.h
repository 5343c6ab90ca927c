#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/schedule/codec/hash.h"
#include "dear/schedule/codec/index.h"
#include "dear/schedule/codec/key_index.h"
#include "dear/schedule/codec/peel.h"
#include "dear/schedule/codec/sketch_shape.h"

// Lossless homomorphic compression (Li et al. 2024, arXiv 2402.07529): the sum of sparse vectors by means
// that only add and combine bits. A sketch is an index of the keys whose block of elements is not all zero,
// and rows: each key adds its block to three of them. Indices are combined by bitwise or, rows are added up,
// and the sum of the vectors is recovered from both by peeling (peel.h).
//
// Beside the paper: a key's rows lie in three disjoint ranges, so that no key meets itself; keys have no
// signs, which only estimates need, and there is no estimate: what cannot be peeled is a failure. Keys are
// dealt out by hash to owners, whose rows lie one owner after the other, so that a reduce-scatter gives each
// the sums of its own; and an owner's keys to groups, whose rows a cache holds.
//
// In fp32 each sum is within rounding of the largest values that met in its rows. So where the sum is zero,
// as of other elements of a block, of a false positive of a Bloom filter or of values that cancel, there may
// be rounding, and an adaptive optimiser makes full steps of it. In fixed point sums are exact and zeros are
// zeros, and a value that would lose bits is told. Training sends values by key (key_index.h) instead.
//
// [Note: a step with sketches] What ranks do with one flat buffer, all with the same SketchShape:
//   encode() on each; all-reduce of the index (int64, bitwise or); read() on each. Where !reading.usable()
//   all ranks send the buffer dense. Reduce-scatter of the rows (sum); peel() of the own part; an all-gather
//   of the values and of whether every key was peeled, and spread() on each: or dense where one was not.
namespace dear::codec {

// Encoded is the result of encode() on this rank; the header of the index tells it to all ranks.
struct Encoded {
  std::int64_t keys = 0;  // of this rank
  Met met{};
  [[nodiscard]] bool usable() const { return !met.not_finite && !met.overflow && !met.inexact; }
};

// A Reading is the content of the combined index of all ranks.
struct Reading {
  IndexHeader header{};
  std::int64_t keys = 0;  // of the union; with a Bloom filter false positives too
  bool fits = true;       // false: some group has more keys than its rows can give back
  [[nodiscard]] bool usable() const { return header.usable() && fits; }
};

struct Peeled {
  std::int64_t unpeeled = 0;  // keys that stayed entangled; unless 0, the values mean nothing
  int rounds = 0;             // in each of which every key that is alone in one of its rows is taken out
};

// Fixed point. An exact sketch holds value x as the integer nearest to x * 2^scale, in int32 or int64.
inline constexpr int kNoScale = IndexHeader::kNoExponent;
// The scale for values below 2^exponent (IndexHeader::exponent, kNoExponent for none) of so many ranks, with
// room for values to grow 256-fold (int64) or 2-fold (int32) until the scale is chosen anew. For fp32: 0.
int scale_for(DType rows, int exponent, int ranks);
// Without that room: for values of which all ranks know the exponent.
int largest_scale(DType rows, int exponent, int ranks);
// Writes values as integers at the largest or a smaller scale; returns whether no value lost bits.
bool hold(std::span<const float> values, int scale, std::span<std::int64_t> integers);
// Recovered sums as fp32: rounded once, to nearest even.
void unscale(std::span<const std::int64_t> sums, int scale, std::span<float> values);
void unscale(std::span<const std::int32_t> sums, int scale, std::span<float> values);

// Encodes and decodes with one shape. Keeps its working memory. One thread at a time. ConfigError where a
// span has not the length that the shape says.
class Sketch {
 public:
  // ConfigError for a shape that KeyIndex refuses, or of more than 2^32 rows, 65535 groups or 2^16 rows in a
  // group.
  explicit Sketch(const SketchShape& shape);
  [[nodiscard]] const SketchShape& shape() const { return shape_; }

  // Writes all of `index` (shape().index_words()) and of `rows` (shape().values()) for this rank's values.
  // T: float; std::int32_t or std::int64_t for fixed point at `scale`. Where the result is not usable the
  // rows mean nothing, but the index may be combined: its header tells all ranks.
  template <typename T>
  Encoded encode(std::span<const float> values, int rank, int scale, std::span<std::uint64_t> index,
                 std::span<T> rows);

  // Takes the combined index, for the three methods below. MismatchError where it names keys that do not
  // exist, so that it is the index of another shape.
  Reading read(std::span<const std::uint64_t> index);
  // Keys of the union that an owner has.
  [[nodiscard]] std::int64_t keys_of(int owner) const;
  // Recovers an owner's part from the sums of its rows (shape().values_per_owner()), which it consumes: the
  // sums of its keys, shape().block values each, in an order that spread() knows, into the first
  // keys_of(owner) * block of `values`. In integers they are exact even where rows wrapped around.
  template <typename T>
  Peeled peel(int owner, std::span<T> rows, std::span<T> values);
  // Writes every owner's values into `out`, which is zero elsewhere; by_owner[q] are those peeled for owner
  // q.
  void spread(std::span<const std::span<const float>> by_owner, std::span<float> out) const;

 private:
  [[nodiscard]] std::int64_t groups() const { return shape_.groups * shape_.ranks; }
  template <typename T>
  bool add(std::span<const float> values, std::span<const std::uint32_t> keys, double scale,
           std::span<T> rows);

  SketchShape shape_;
  KeyHash hash_;
  KeyIndex index_;
  // Working memory of encode(): groups and rows of the keys of a part of the values.
  std::vector<std::uint16_t> groups_;
  std::vector<PackedRows> places_;
  // Each key's group in the union, and the number of keys in each group.
  std::vector<std::uint16_t> group_of_;
  std::vector<std::int64_t> count_;
  // They serve peel(): rows of each key of the owner, group after group.
  std::vector<PackedRows> rows_of_;
  PeelingMemory memory_;
};

}  // namespace dear::codec
