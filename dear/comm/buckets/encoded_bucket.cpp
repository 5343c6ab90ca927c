#include "dear/comm/buckets/encoded_bucket.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/kernels.h"

namespace dear::buckets {
namespace {

std::span<float> floats_of(const View& view, std::int64_t count) {
  return {reinterpret_cast<float*>(view.buffer.data() + view.offset_bytes), static_cast<std::size_t>(count)};
}

// Returns the part of a vector's bytes that one rank sends at least.
double share_sent(Collective collective, int ranks) {
  const double half = static_cast<double>(ranks - 1) / ranks;
  return collective == Collective::all_reduce ? 2 * half : half;
}

void restore(std::span<float> to, const std::vector<float>& from, const char* what) {
  if (to.size() != from.size())
    throw ConfigError(fmt::format(
        "the state of a compression has a {} of {} values, where {} are needed: load the state of "
        "the same compression and model",
        what, from.size(), to.size()));
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

double bytes_sent(const Request& request, int ranks) {
  return share_sent(request.collective, ranks) *
         static_cast<double>(request.view.count * size_of(request.view.dtype));
}

double dense_bytes(std::int64_t bytes, int ranks) {
  return share_sent(Collective::all_reduce, ranks) * static_cast<double>(bytes);
}

CompressionCounts add(CompressionCounts counts, const CompressionCounts& more) {
  counts.steps += more.steps;
  counts.bytes += more.bytes;
  counts.dense_bytes += more.dense_bytes;
  counts.not_finite += more.not_finite;
  counts.codec.dense_exchanges += more.codec.dense_exchanges;
  if (more.codec.not_finite_rank >= 0) counts.codec.not_finite_rank = more.codec.not_finite_rank;
  return counts;
}

EncodedBucket::EncodedBucket(const Compression& compression, std::vector<EncodedTensor> tensors, Flat flat,
                             const Group& group)
    : compression_(compression),
      tensors_(std::move(tensors)),
      flat_(std::move(flat)),
      ranks_(group.size()),
      feedback_(compression, flat_.encoded_elements),
      gradients_(floats_of(flat_.gradients, flat_.encoded_elements)),
      parameters_(floats_of(flat_.parameters, flat_.encoded_elements)) {
  View encoded = flat_.gradients;
  encoded.count = flat_.encoded_elements;
  codec_ = make_codec({compression_, tensors_, encoded, group});
}

std::int64_t EncodedBucket::bytes() const {
  std::int64_t bytes = feedback_.bytes() + codec_->bytes();
  for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor)
    bytes += static_cast<std::int64_t>(codec_->memory(tensor).size() * sizeof(float));
  return bytes;
}

void EncodedBucket::encode(std::uint8_t round) {
  if (round == 0) feedback_.prepare(gradients_, parameters_);
  codec_->encode(round, gradients_, step_);
}

void EncodedBucket::decode(bool keeps) {
  if (!keeps) {
    feedback_.drop();
  } else if (compression_.feedback || compression_.momentum > 0) {
    const auto take_out = [this](std::span<float> values) { codec_->take_out(values, step_); };
    if (compression_.feedback) take_out(gradients_);
    feedback_.keep(gradients_, take_out);
  }
  codec_->decode(gradients_, step_);
  if (!keeps) return;
  ++step_;
  ++counts_.steps;
  if (!codec::all_finite(gradients_)) ++counts_.not_finite;
  counts_.dense_bytes += dense_bytes(flat_.gradients.count * size_of(DType::f32), ranks_);
}

Request EncodedBucket::request(Collective collective, std::uint8_t part) {
  Request request;
  if (part < codec_->parts()) {
    request = codec_->request(collective, part, step_);
  } else {
    View dense = flat_.gradients;
    dense.offset_bytes += flat_.encoded_elements * size_of(dense.dtype);
    dense.count -= flat_.encoded_elements;
    request = {.collective = collective, .view = dense, .reduction = Reduction::average};
  }
  counts_.bytes += bytes_sent(request, ranks_);
  return request;
}

std::optional<Request> EncodedBucket::more() {
  std::optional<Request> request = codec_->more();
  if (request) more_bytes_ += bytes_sent(*request, ranks_);
  return request;
}

bool EncodedBucket::may_ask_more(Collective collective, std::uint8_t part) const {
  return part < codec_->parts() && codec_->may_ask_more(collective, part);
}

CompressionState EncodedBucket::state(std::size_t tensor) {
  const Range& range = tensors_.at(tensor).range;
  const std::span<float> residual = feedback_.residual(range), momentum = feedback_.momentum(range);
  return {.residual = {residual.begin(), residual.end()},
          .momentum = {momentum.begin(), momentum.end()},
          .codec = codec_->memory(tensor)};
}

void EncodedBucket::set_state(std::size_t tensor, const CompressionState& state) {
  const Range& range = tensors_.at(tensor).range;
  restore(feedback_.residual(range), state.residual, "residual");
  restore(feedback_.momentum(range), state.momentum, "momentum");
  codec_->set_memory(tensor, state.codec);
}

CompressionCounts EncodedBucket::counts() const {
  CompressionCounts counts = counts_;
  counts.bytes += more_bytes_;
  counts.codec = codec_->counts();
  return counts;
}

double EncodedBucket::squared_residual() {
  double sum = 0;
  for (const float one : feedback_.residual({0, flat_.encoded_elements}))
    sum += static_cast<double>(one) * static_cast<double>(one);
  return sum;
}

}  // namespace dear::buckets
