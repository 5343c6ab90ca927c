#include "studies/training/averaging.h"
#include "studies/training/sketched_sum.h"
#include <algorithm>
#include <cmath>
#include <optional>

#include "dear/schedule/codec/sketch.h"
#include "dear/schedule/codec/sketch_shape.h"

namespace dear::studies::training {
namespace {

constexpr double kGrowth = 1.1;  // of a union, beyond the largest one of all steps

class Sketched final : public Averaging {
 public:
  Sketched(std::int64_t elements, std::size_t workers, const Compression& compression)
      : spec_(compression.sketch),
        seed_(compression.seed),
        elements_(elements),
        ranks_(static_cast<int>(workers)) {
    spec_.room = SketchSpec{}.room;
  }

  double average(std::vector<std::vector<float>>& gradients, std::span<const float> /*parameters*/,
                 std::int64_t /*step*/, std::span<float> mean) override {
    double bytes = 0;
    if (sketch_) {
      const Summed summed = spec_.exact ? sum_by_sketch<std::int64_t>(*sketch_, gradients, scale_, mean)
                                        : sum_by_sketch<float>(*sketch_, gradients, 0, mean);
      const DType rows = spec_.exact ? DType::i64 : DType::f32;
      bytes = codec::bytes_sent(sketch_->shape(), static_cast<double>(summed.keys), rows);
      if (summed.recovered) {
        choose_scale(summed.exponent);
        most_keys_ = std::max(most_keys_, summed.keys);
        const float share = 1 / static_cast<float>(ranks_);
        for (float& value : mean) value *= share;
        return bytes;
      }
      ++seed_;  // keys that meet in all of their rows do not do so under another seed
    }
    average_dense(gradients, mean);
    learn_from(mean);
    resize();
    return bytes + codec::dense_bytes_sent(elements_, ranks_);
  }

 private:
  void choose_scale(int exponent) { scale_ = codec::scale_for(DType::i64, exponent, ranks_); }

  void learn_from(std::span<const float> mean) {
    const std::array<std::int64_t, 4> keys = codec::count_keys(mean);
    if (spec_.block == 0) spec_.block = codec::choose_block(spec_, elements_, ranks_, keys);
    const auto* const found = std::find(codec::kBlocks.begin(), codec::kBlocks.end(), spec_.block);
    // Other blocks have no more keys than single elements have.
    const std::size_t at =
        found == codec::kBlocks.end() ? 0 : static_cast<std::size_t>(found - codec::kBlocks.begin());
    most_keys_ = std::max(most_keys_, keys[at]);
    float largest = 0;
    for (const float value : mean) largest = std::max(largest, std::abs(value));
    choose_scale(largest > 0 && std::isfinite(largest) ? std::ilogb(largest) + 1 : codec::kNoScale);
  }

  void resize() {
    const double keys = kGrowth * static_cast<double>(std::max<std::int64_t>(1, most_keys_));
    const auto all = static_cast<double>((elements_ + spec_.block - 1) / spec_.block);
    sketch_.reset();
    if (codec::pays(spec_, elements_, ranks_, std::min(1.0, keys / all)))
      sketch_.emplace(codec::shape_for(spec_, elements_, ranks_, keys, seed_));
  }

  SketchSpec spec_;
  std::uint64_t seed_;
  std::int64_t elements_;
  int ranks_;
  std::int64_t most_keys_ = 0;
  int scale_ = codec::kNoScale;
  std::optional<codec::Sketch> sketch_;  // of the next step; none: it goes dense
};

}  // namespace

std::unique_ptr<Averaging> make_sketched_averaging(std::int64_t elements, std::size_t workers,
                                                   const Compression& compression) {
  return std::make_unique<Sketched>(elements, workers, compression);
}

}  // namespace dear::studies::training
