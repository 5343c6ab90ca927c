#include "studies/training/averaging.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/feedback.h"
#include "dear/schedule/codec/sketch_shape.h"

namespace dear::studies::training {
namespace {

std::vector<codec::Segment> segments_of(const std::vector<Range>& tensors, const Compression& compression) {
  if (compression.scope != Scope::tensor) return {{.range = {0, tensors.back().end}, .key = 0}};
  std::vector<codec::Segment> segments;
  for (const Range& tensor : tensors) segments.push_back({.range = tensor, .key = segments.size()});
  return segments;
}

class Dense final : public Averaging {
 public:
  double average(std::vector<std::vector<float>>& gradients, std::span<const float> /*parameters*/,
                 std::int64_t /*step*/, std::span<float> mean) override {
    average_dense(gradients, mean);
    return codec::dense_bytes_sent(std::ssize(mean), static_cast<int>(gradients.size()));
  }
};

// Codec: Reducible or Gatherable.
template <class Codec>
void keep(codec::Feedback& feedback, Codec& codec, const std::vector<std::byte>& payload, std::int64_t step,
          std::span<float> remainder) {
  const auto take_out = [&](std::span<float> values) { codec.take_out(payload.data(), step, values); };
  take_out(remainder);
  feedback.keep(remainder, take_out);
}

class Reduced final : public Averaging {
 public:
  Reduced(const std::vector<Range>& tensors, std::size_t workers, const Compression& compression)
      : codec_(codec::make_reducible(compression, segments_of(tensors, compression))),
        feedback_(workers, codec::Feedback(compression, tensors.back().end)),
        payload_(static_cast<std::size_t>(codec_->most_elements()) * sizeof(float)) {}

  double average(std::vector<std::vector<float>>& gradients, std::span<const float> parameters,
                 std::int64_t step, std::span<float> mean) override {
    const auto elements = static_cast<std::size_t>(codec_->elements(step));
    sum_.assign(elements, 0);
    const float share = 1 / static_cast<float>(gradients.size());
    for (std::size_t worker = 0; worker < gradients.size(); ++worker) {
      feedback_[worker].prepare(gradients[worker], parameters);
      codec_->encode(gradients[worker], step, payload_.data());
      const auto* const values = reinterpret_cast<const float*>(payload_.data());
      for (std::size_t i = 0; i < elements; ++i) sum_[i] += values[i];
      keep(feedback_[worker], *codec_, payload_, step, gradients[worker]);
    }
    for (float& value : sum_) value *= share;
    std::fill(mean.begin(), mean.end(), 0.0F);
    codec_->decode(reinterpret_cast<const std::byte*>(sum_.data()), step, mean);
    return codec::dense_bytes_sent(codec_->elements(step), static_cast<int>(gradients.size()));
  }

 private:
  std::unique_ptr<codec::Reducible> codec_;
  std::vector<codec::Feedback> feedback_;
  std::vector<std::byte> payload_;
  std::vector<float> sum_;
};

class Gathered final : public Averaging {
 public:
  Gathered(const std::vector<Range>& tensors, std::size_t workers, const Compression& compression)
      : feedback_(workers, codec::Feedback(compression, tensors.back().end)) {
    for (int worker = 0; std::cmp_less(worker, workers); ++worker)
      codecs_.push_back(codec::make_gatherable(compression, segments_of(tensors, compression), worker));
    payload_.resize(static_cast<std::size_t>(codecs_.front()->most_bytes()));
  }

  double average(std::vector<std::vector<float>>& gradients, std::span<const float> parameters,
                 std::int64_t step, std::span<float> mean) override {
    const float share = 1 / static_cast<float>(gradients.size());
    std::fill(mean.begin(), mean.end(), 0.0F);
    for (std::size_t worker = 0; worker < gradients.size(); ++worker) {
      codec::Gatherable& codec = *codecs_[worker];
      feedback_[worker].prepare(gradients[worker], parameters);
      codec.encode(gradients[worker], step, payload_.data());
      codec.add(payload_.data(), step, share, mean);
      keep(feedback_[worker], codec, payload_, step, gradients[worker]);
    }
    return static_cast<double>(codecs_.front()->bytes(step)) * (static_cast<double>(gradients.size()) - 1);
  }

 private:
  std::vector<std::unique_ptr<codec::Gatherable>> codecs_;
  std::vector<codec::Feedback> feedback_;
  std::vector<std::byte> payload_;
};

}  // namespace

void average_dense(const std::vector<std::vector<float>>& gradients, std::span<float> mean) {
  const float share = 1 / static_cast<float>(gradients.size());
  std::fill(mean.begin(), mean.end(), 0.0F);
  for (const std::vector<float>& gradient : gradients)
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i];
  for (float& value : mean) value *= share;
}

std::unique_ptr<Averaging> make_averaging(const std::vector<Range>& tensors, std::size_t workers,
                                          const Method& method, std::uint64_t seed) {
  if (!method) return std::make_unique<Dense>();
  Compression compression = *method;
  if (compression.scheme == Scheme::low_rank || compression.scheme == Scheme::fp16 ||
      compression.scheme == Scheme::bf16)
    throw ConfigError(fmt::format("{} is not studied: choose another scheme", compression.text()));
  if (compression.scheme == Scheme::random_k || compression.scheme == Scheme::random_block)
    compression.seed = seed;  // others draw nothing that learning depends on
  if (compression.scheme == Scheme::sketch)
    return make_sketched_averaging(tensors.back().end, workers, compression);
  if (compression.gathers()) return std::make_unique<Gathered>(tensors, workers, compression);
  return std::make_unique<Reduced>(tensors, workers, compression);
}

}  // namespace dear::studies::training
