#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <vector>

#include "dear/comm/buckets/bucket_codec.h"
#include "dear/schedule/codec/key_index.h"
#include "dear/schedule/codec/sketch.h"

// Sparse gradients: part 0 is the index of keys that are not zero on some rank, part 1 their values, which
// add up as dense gradients do ([Note: values by key]).
//
// [Note: when an index travels] Every rank knows how many keys the union had in the last steps, from the
// combined index, or from the dense mean. Where as many again would send more than dense gradients do, and in
// the first step, which knows nothing, the bucket travels dense: index and values are empty then. It also
// travels dense, after the index, where the union turns out to be too large.
//
// In fixed point all ranks take the scale from the combined index. Behind the values each adds 1 if it lost
// bits: then, as where one met NaN or infinity, the bucket travels dense.
namespace dear::buckets {
namespace {

constexpr std::size_t kRemembered = 8;  // steps whose unions tell what the next one will be

class Sketched : public BucketCodec {
 public:
  explicit Sketched(const CodecOf& of)
      : spec_(of.compression.sketch),
        seed_(of.compression.seed),
        gradients_(of.gradients),
        rank_(of.group.rank()),
        ranks_(of.group.size()),
        dtype_(spec_.exact ? DType::i64 : DType::f32) {
    std::int64_t most_values = 0;
    for (const std::int64_t block : blocks()) {
      most_words_ = std::max(most_words_, words(shape(block, static_cast<double>(most_keys(block)))));
      most_values = std::max(most_values, values_of(block, most_keys(block)));
    }
    index_ = of.group.allocate(most_words_ * size_of(DType::i64));
    values_ = of.group.allocate(most_values * size_of(dtype_));
  }

  [[nodiscard]] std::uint8_t parts() const override { return 2; }

  void encode(std::uint8_t round, std::span<const float> values, std::int64_t /*step*/) override {
    if (round > 0) return encode_values(values);
    resize();
    if (!keys_) return;
    // An all-reduce of a header and a bitmap needs no padding: elements beyond the shape's words are zero.
    std::fill_n(index(), words(keys_->shape()), 0);
    codec::write_header(index_words(), ranks_, rank_, keys_->encode(values, index_words()));
  }

  Request request(Collective collective, std::uint8_t part, std::int64_t /*step*/) override {
    if (part == 0)
      return {.collective = collective,
              .view = {.buffer = index_, .count = keys_ ? words(keys_->shape()) : 0, .dtype = DType::i64},
              .reduction = Reduction::bitwise_or};
    return {.collective = collective,
            .view = {.buffer = values_,
                     .count = dense_ ? 0 : values_of(keys_->shape().block, std::ssize(keys_->keys())),
                     .dtype = dtype_},
            .reduction = spec_.exact ? Reduction::sum : Reduction::average};
  }

  [[nodiscard]] bool may_ask_more(Collective collective, std::uint8_t part) const override {
    return part == 1 && collective != Collective::reduce_scatter;
  }

  std::optional<Request> more() override {
    if (!dense_ && spec_.exact) dense_ = integers()[by_key()] != 0;
    if (!dense_) return std::nullopt;
    return Request{.collective = Collective::all_reduce, .view = gradients_, .reduction = Reduction::average};
  }

  void decode(std::span<float> values, std::int64_t /*step*/) override {
    if (dense_) {
      if (keys_) ++counts_.dense_exchanges;
      learn_from(values);
      return;
    }
    std::fill(values.begin(), values.end(), 0.0F);
    if (!spec_.exact) return keys_->spread({floats(), by_key()}, values);
    blocks_.resize(by_key());
    codec::unscale(std::span<const std::int64_t>(integers(), by_key()), scale_, blocks_);
    for (float& sum : blocks_) sum /= static_cast<float>(ranks_);
    keys_->spread(blocks_, values);
  }

  // What travels is all there is.
  void take_out(std::span<float> values, std::int64_t /*step*/) override {
    std::fill(values.begin(), values.end(), 0.0F);
  }

  [[nodiscard]] CodecCounts counts() const override { return counts_; }

  [[nodiscard]] std::int64_t bytes() const override { return index_.bytes() + values_.bytes(); }

 private:
  [[nodiscard]] std::vector<std::int64_t> blocks() const {
    if (spec_.block > 0) return {spec_.block};
    return {codec::kBlocks.begin(), codec::kBlocks.end()};
  }
  [[nodiscard]] std::int64_t keys_at(std::int64_t block) const {
    return (gradients_.count + block - 1) / block;
  }
  // With which values still travel, and are fewer bytes than dense gradients.
  [[nodiscard]] std::int64_t most_keys(std::int64_t block) const {
    const double allowed = spec_.most_density * static_cast<double>(keys_at(block));
    return std::min(static_cast<std::int64_t>(allowed),
                    gradients_.count * size_of(DType::f32) / (block * size_of(dtype_)));
  }
  // Elements that travel for so many keys.
  [[nodiscard]] std::int64_t values_of(std::int64_t block, std::int64_t keys) const {
    return padded(keys * block + (spec_.exact ? 1 : 0), dtype_, ranks_);
  }
  [[nodiscard]] std::int64_t words(const codec::SketchShape& shape) const {
    return padded(shape.index_words(), DType::i64, ranks_);
  }
  [[nodiscard]] codec::SketchShape shape(std::int64_t block, double keys) const {
    SketchSpec spec = spec_;
    spec.block = block;
    return codec::shape_for(spec, gradients_.count, ranks_, keys, seed_);
  }
  [[nodiscard]] std::uint64_t* index() const { return reinterpret_cast<std::uint64_t*>(index_.data()); }
  [[nodiscard]] std::span<std::uint64_t> index_words() const {
    return {index(), static_cast<std::size_t>(keys_->shape().index_words())};
  }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(values_.data()); }
  [[nodiscard]] std::int64_t* integers() const { return reinterpret_cast<std::int64_t*>(values_.data()); }
  // Values of the union's keys.
  [[nodiscard]] std::size_t by_key() const {
    return keys_->keys().size() * static_cast<std::size_t>(keys_->shape().block);
  }

  // Chooses the shape of this step, by what is known of the last ones; none: the bucket travels dense.
  void resize() {
    dense_ = true;
    const std::int64_t most = unions_.empty() ? -1 : *std::max_element(unions_.begin(), unions_.end());
    const auto keys = static_cast<double>(std::max<std::int64_t>(1, most));
    SketchSpec spec = spec_;
    spec.block = block_;
    if (most < 0 ||
        !codec::pays(spec, gradients_.count, ranks_, keys / static_cast<double>(keys_at(block_)))) {
      keys_.reset();
      return;
    }
    const codec::SketchShape wanted = shape(block_, keys);
    if (words(wanted) > most_words_)
      keys_.reset();
    else if (!keys_ || keys_->shape() != wanted)
      keys_.emplace(wanted);
  }

  // The values of the union's keys, once its index is known.
  void encode_values(std::span<const float> values) {
    if (!keys_) return;
    const codec::IndexHeader header = keys_->read(index_words());
    const std::int64_t keys = std::ssize(keys_->keys()), block = keys_->shape().block;
    remember(keys);
    if (!header.not_finite.empty()) counts_.not_finite_rank = header.not_finite.front();
    dense_ = keys > most_keys(block) || (spec_.exact && !header.not_finite.empty());
    if (dense_) return;
    const auto travel = static_cast<std::size_t>(values_of(block, keys));
    if (!spec_.exact) {
      keys_->gather(values, {floats(), by_key()});
      std::fill(floats() + by_key(), floats() + travel, 0.0F);
      return;
    }
    blocks_.resize(by_key());
    keys_->gather(values, blocks_);
    scale_ = codec::largest_scale(DType::i64, header.exponent, ranks_);
    const bool exact = codec::hold(blocks_, scale_, {integers(), by_key()});
    std::fill(integers() + by_key(), integers() + travel, 0);
    integers()[by_key()] = exact ? 0 : 1;
  }

  void remember(std::int64_t keys) {
    unions_.push_back(keys);
    if (unions_.size() > kRemembered) unions_.pop_front();
  }

  // Learns from a dense mean, which every rank has to the bit.
  void learn_from(std::span<const float> mean) {
    if (keys_) return;  // its index has said more
    const std::array<std::int64_t, 4> keys = codec::count_keys(mean);
    if (unions_.empty())
      block_ = spec_.block > 0 ? spec_.block : codec::choose_block(spec_, gradients_.count, ranks_, keys);
    remember(keys_of_block(keys, mean));
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
  const std::uint64_t seed_;
  const View gradients_;
  const int rank_, ranks_;
  const DType dtype_;
  std::int64_t most_words_ = 0;
  Buffer index_, values_;
  std::int64_t block_ = 1;
  std::deque<std::int64_t> unions_;      // keys of the last unions
  std::optional<codec::KeyIndex> keys_;  // of this step; none: dense
  bool dense_ = true;
  int scale_ = codec::kNoScale;
  std::vector<float> blocks_;  // in fixed point: values by key, before and after
  CodecCounts counts_;
};

}  // namespace

std::unique_ptr<BucketCodec> make_sketched(const CodecOf& of) { return std::make_unique<Sketched>(of); }

}  // namespace dear::buckets
