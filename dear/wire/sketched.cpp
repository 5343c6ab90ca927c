#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <vector>

#include "dear/codec/sketch.h"
#include "dear/wire/bucket_codec.h"

// Sparse gradients, whose sum travels as a sketch: part 0 is the index, part 1 the rows, whose owners send
// back what they recovered.
//
// [Note: sizes of a sketch] Every rank knows how many keys the union had in the last steps, from the combined
// index, or from the dense mean. The most of them, with the room that the user asks for, makes the rows of
// the next step. Where that would send more than dense gradients do, and in the first step, which knows
// nothing, the bucket travels dense: index and rows are empty then. It also travels dense, after the sketch,
// where an owner could not recover all its keys, or a rank met what a sketch cannot hold.
namespace dear::wire {
namespace {

constexpr std::size_t kRemembered = 8;  // steps whose unions make the next size
constexpr std::int64_t kHeader = 16;    // floats before the values of an owner: whether it recovered all
constexpr std::int64_t kLine = 16;  // floats; ranges of rows are multiples, so that owners' rows are shards

class Sketched : public BucketCodec {
 public:
  explicit Sketched(const CodecOf& of)
      : spec_(of.compression.sketch),
        seed_(of.compression.seed),
        gradients_(of.gradients),
        rank_(of.group.rank()),
        ranks_(of.group.size()),
        exact_(spec_.exact),
        row_bytes_(exact_ ? size_of(DType::i64) : size_of(DType::f32)) {
    for (const std::int64_t block : blocks()) {
      const codec::SketchShape largest =
          shape(block, spec_.most_density * static_cast<double>(keys_at(block)));
      most_words_ = std::max(most_words_, words(largest));
      most_values_ = std::max(most_values_, largest.values());
    }
    index_ = of.group.allocate(most_words_ * size_of(DType::i64));
    rows_ = of.group.allocate(most_values_ * row_bytes_);
    recovered_ =
        of.group.allocate(most_values_ * size_of(DType::f32) + ranks_ * kHeader * size_of(DType::f32));
  }

  [[nodiscard]] std::uint8_t parts() const override { return 2; }

  void encode(std::uint8_t round, std::span<const float> values, std::int64_t /*step*/) override {
    if (round > 0) return recover();
    resize();
    if (!sketch_) return;
    used_scale_ = scale_;
    // An all-reduce of a header and a bitmap needs no padding: elements beyond the shape's words are zero.
    std::fill_n(index(), words(sketch_->shape()), 0);
    const std::span<std::uint64_t> index_span(index(),
                                              static_cast<std::size_t>(sketch_->shape().index_words()));
    if (exact_)
      sketch_->encode<std::int64_t>(values, rank_, used_scale_, index_span, rows_of<std::int64_t>());
    else
      sketch_->encode<float>(values, rank_, 0, index_span, rows_of<float>());
  }

  Request request(Collective collective, std::uint8_t part, std::int64_t /*step*/) override {
    if (part == 0)
      return {.collective = collective,
              .view = {.buffer = index_, .count = sketch_ ? words(sketch_->shape()) : 0, .dtype = DType::i64},
              .reduction = Reduction::bitwise_or};
    if (collective == Collective::all_gather)
      return {.collective = collective,
              .view = {.buffer = recovered_, .count = usable_ ? ranks_ * slot_ : 0, .dtype = DType::f32}};
    return {.collective = collective,
            .view = {.buffer = rows_,
                     .count = sketch_ ? sketch_->shape().values() : 0,
                     .dtype = exact_ ? DType::i64 : DType::f32},
            .reduction = Reduction::sum};
  }

  [[nodiscard]] bool may_ask_more(Collective collective, std::uint8_t part) const override {
    return part == 1 && collective == Collective::all_gather;
  }

  std::optional<Request> more() override {
    dense_ = !usable_;
    for (int rank = 0; rank < ranks_ && !dense_; ++rank) dense_ = slot(rank)[0] != 0;
    if (!dense_) return std::nullopt;
    return Request{.collective = Collective::all_reduce, .view = gradients_, .reduction = Reduction::average};
  }

  void decode(std::span<float> values, std::int64_t /*step*/) override {
    if (dense_) {
      if (sketch_) ++counts_.dense_exchanges;
      if (usable_) ++seed_;  // keys that meet in all of their rows do not do so under another seed
      learn_from(values);
      return;
    }
    std::vector<std::span<const float>> by_owner;
    for (int owner = 0; owner < ranks_; ++owner) {
      const std::span<float> sums(slot(owner) + kHeader, values_of(owner));
      for (float& sum : sums) sum /= static_cast<float>(ranks_);
      by_owner.emplace_back(sums);
    }
    std::fill(values.begin(), values.end(), 0.0F);
    sketch_->spread(by_owner, values);
  }

  // What travels is all there is.
  void take_out(std::span<float> values, std::int64_t /*step*/) override {
    std::fill(values.begin(), values.end(), 0.0F);
  }

  [[nodiscard]] CodecCounts counts() const override { return counts_; }

  [[nodiscard]] std::int64_t bytes() const override {
    return index_.bytes() + rows_.bytes() + recovered_.bytes();
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> blocks() const {
    if (spec_.block > 0) return {spec_.block};
    return {codec::kBlocks.begin(), codec::kBlocks.end()};
  }
  [[nodiscard]] std::int64_t keys_at(std::int64_t block) const {
    return (gradients_.count + block - 1) / block;
  }
  [[nodiscard]] std::int64_t words(const codec::SketchShape& shape) const {
    return padded(shape.index_words(), DType::i64, ranks_);
  }
  [[nodiscard]] codec::SketchShape shape(std::int64_t block, double keys) const {
    SketchSpec spec = spec_;
    spec.block = block;
    codec::SketchShape shape = codec::shape_for(spec, gradients_.count, ranks_, keys, seed_);
    shape.range = (shape.range + kLine - 1) / kLine * kLine;
    return shape;
  }
  [[nodiscard]] std::uint64_t* index() const { return reinterpret_cast<std::uint64_t*>(index_.data()); }
  template <typename T>
  [[nodiscard]] std::span<T> rows_of() const {
    return {reinterpret_cast<T*>(rows_.data()), static_cast<std::size_t>(sketch_->shape().values())};
  }
  [[nodiscard]] float* slot(int owner) const {
    return reinterpret_cast<float*>(recovered_.data()) + owner * slot_;
  }
  [[nodiscard]] std::size_t values_of(int owner) const {
    return static_cast<std::size_t>(sketch_->keys_of(owner) * sketch_->shape().block);
  }

  // Chooses the shape of this step, by what is known of the last ones; none: the bucket travels dense.
  void resize() {
    usable_ = false;
    dense_ = true;
    const std::int64_t most = unions_.empty() ? -1 : *std::max_element(unions_.begin(), unions_.end());
    const auto keys = static_cast<double>(std::max<std::int64_t>(1, most));
    SketchSpec spec = spec_;
    spec.block = block_;
    if (most < 0 ||
        !codec::pays(spec, gradients_.count, ranks_, keys / static_cast<double>(keys_at(block_)))) {
      sketch_.reset();
      return;
    }
    const codec::SketchShape wanted = shape(block_, keys);
    if (wanted.values() > most_values_ || words(wanted) > most_words_) {
      sketch_.reset();
    } else if (!sketch_ || sketch_->shape() != wanted) {
      sketch_.emplace(wanted);
    }
  }

  // The owner's part, between the halves.
  void recover() {
    if (!sketch_) return;
    const codec::Reading reading =
        sketch_->read({index(), static_cast<std::size_t>(sketch_->shape().index_words())});
    remember(reading.keys);
    if (exact_) scale_ = codec::scale_for(DType::i64, reading.header.exponent, ranks_);
    if (!reading.header.not_finite.empty()) counts_.not_finite_rank = reading.header.not_finite.front();
    usable_ = reading.usable();
    if (!usable_) return;
    std::size_t most = 0;
    for (int owner = 0; owner < ranks_; ++owner) most = std::max(most, values_of(owner));
    slot_ = kHeader + padded(static_cast<std::int64_t>(most), DType::f32, 1);
    float* const own = slot(rank_);
    std::fill_n(own, slot_, 0.0F);
    const std::span<float> values(own + kHeader, values_of(rank_));
    const codec::Peeled peeled = exact_ ? peel_exactly(values) : peel<float>(values);
    own[0] = peeled.unpeeled > 0 ? 1.0F : 0.0F;
    counts_.peeling_rounds = std::max<std::int64_t>(counts_.peeling_rounds, peeled.rounds);
  }

  template <typename T>
  codec::Peeled peel(std::span<T> values) {
    const auto per_owner = static_cast<std::size_t>(sketch_->shape().values_per_owner());
    return sketch_->peel<T>(
        rank_, rows_of<T>().subspan(static_cast<std::size_t>(rank_) * per_owner, per_owner), values);
  }
  codec::Peeled peel_exactly(std::span<float> values) {
    sums_.resize(values.size());
    const codec::Peeled peeled = peel<std::int64_t>(std::span(sums_));
    if (peeled.unpeeled == 0) codec::unscale(std::span<const std::int64_t>(sums_), used_scale_, values);
    return peeled;
  }

  void remember(std::int64_t keys) {
    unions_.push_back(keys);
    if (unions_.size() > kRemembered) unions_.pop_front();
  }

  // Of a dense mean, which every rank has to the bit.
  void learn_from(std::span<const float> mean) {
    if (sketch_) return;  // its index has said more
    const std::array<std::int64_t, 4> keys = codec::count_keys(mean);
    if (unions_.empty())
      block_ = spec_.block > 0 ? spec_.block : codec::choose_block(spec_, gradients_.count, ranks_, keys);
    remember(keys_of_block(keys, mean));
    float largest = 0;
    for (const float value : mean) largest = std::max(largest, std::abs(value));
    const int exponent = largest > 0 && std::isfinite(largest) ? std::ilogb(largest) + 1 : codec::kNoScale;
    if (exact_) scale_ = codec::scale_for(DType::i64, exponent, ranks_);
  }
  [[nodiscard]] std::int64_t keys_of_block(const std::array<std::int64_t, 4>& keys,
                                           std::span<const float> mean) const {
    const auto* const found = std::find(codec::kBlocks.begin(), codec::kBlocks.end(), block_);
    if (found != codec::kBlocks.end()) return keys[static_cast<std::size_t>(found - codec::kBlocks.begin())];
    std::int64_t count = 0;
    const auto block = static_cast<std::size_t>(block_);
    for (std::size_t begin = 0; begin < mean.size(); begin += block) {
      const std::span<const float> one = mean.subspan(begin, std::min(block, mean.size() - begin));
      count += std::any_of(one.begin(), one.end(), [](float value) { return value != 0; }) ? 1 : 0;
    }
    return count;
  }

  const SketchSpec spec_;
  std::uint64_t seed_;
  const View gradients_;
  const int rank_, ranks_;
  const bool exact_;
  const std::int64_t row_bytes_;
  std::int64_t most_words_ = 0, most_values_ = 0;
  Buffer index_, rows_, recovered_;
  std::int64_t block_ = 1;
  std::deque<std::int64_t> unions_;                             // keys of the last unions
  std::optional<codec::Sketch> sketch_;                         // of this step; none: dense
  int scale_ = codec::kNoScale, used_scale_ = codec::kNoScale;  // of the next step; of this one
  bool usable_ = false, dense_ = true;
  std::int64_t slot_ = kHeader;  // floats that an owner sends back
  std::vector<std::int64_t> sums_;
  CodecCounts counts_;
};

}  // namespace

std::unique_ptr<BucketCodec> make_sketched(const CodecOf& of) { return std::make_unique<Sketched>(of); }

}  // namespace dear::wire
