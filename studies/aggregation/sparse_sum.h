#pragma once

#include "studies/aggregation/star.h"
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dear/schedule/codec/compression.h"
#include "dear/schedule/codec/sketch.h"

// Sums of sparse vectors through an aggregator that adds sketches (schedule/codec/sketch.h) without knowing
// it: Li et al. 2024, arXiv 2402.07529. Every worker recovers the whole sum by itself.
namespace dear::studies::aggregation {

struct SparseSumOptions {
  std::int64_t elements = 0;
  double keys = 1;  // that the union of all workers is expected to have: the size of the first sketch
  SketchSpec sketch{};
  std::uint64_t seed = 1;
};

// How a sum was had, the same on every worker. All but the first travelled dense, after the sketch.
enum class Outcome : std::uint8_t {
  sketch,
  not_finite,  // a worker had NaN or infinity
  overflow,    // a value is too large: for the sums of a row, or for fixed point at the scale of this step,
               // and the first exact step has none
  inexact,     // fixed point at the scale of this step, which the last one chose, loses bits of a value
  too_many_keys,  // more than the rows can give back
  entangled       // peeling left some keys
};
std::string_view name_of(Outcome outcome);  // "too many keys"

struct Summed {
  Outcome outcome = Outcome::sketch;
  std::vector<int> not_finite;  // the workers that had NaN or infinity
  std::int64_t keys = 0;        // of the union; with a Bloom filter false positives too
  int rounds = 0;               // of peeling
};

// The sum of all workers' values, added up by the aggregator as fp32 in the order of workers.
void add_dense(Worker& worker, std::span<const float> values, std::span<float> sums);

// In fp32 a sum is within rounding of the largest values that its rows met, and where all values are zero, or
// cancel, a block or a false positive of a Bloom filter may leave rounding: an adaptive optimiser makes full
// steps of it, so give it exact sums. Those are rounded once, and zeros are zeros.
//
// Every worker makes one with the same options, and calls add() equally often. ConfigError for options from
// which no sketch can be made.
class SparseSum {
 public:
  SparseSum(Worker& worker, const SparseSumOptions& options);
  // Writes the sum of all workers' values, with options.elements elements, into `sums`, which is no part of
  // `values`. Where a sketch did not hold it, the next one is made larger, or in another scale.
  Summed add(std::span<const float> values, std::span<float> sums);
  [[nodiscard]] const codec::SketchShape& shape() const { return sketch_->shape(); }

 private:
  template <typename T>
  Summed add_sketch(std::span<const float> values, std::span<float> sums);
  template <typename T>
  void recover(int owner, std::span<T> rows, Summed& summed);
  void make_sketch();
  void learn(const Summed& summed, int exponent);

  Worker* worker_;
  SparseSumOptions options_;
  std::optional<codec::Sketch> sketch_;
  int scale_ = codec::kNoScale;
  std::vector<std::int64_t> integers_;         // recovered from an exact sketch
  std::vector<std::vector<float>> recovered_;  // by owner
};

}  // namespace dear::studies::aggregation
