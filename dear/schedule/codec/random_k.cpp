#include "dear/schedule/codec/random_k.h"

#include <algorithm>

namespace dear::codec {
namespace {

// Calls use(values of a segment, its indices, what decoding multiplies with) for each segment.
template <class Value, class Use>
void for_each_subset(const KeptSegments& kept_segments, const std::vector<std::uint32_t>& indices,
                     std::int64_t step, std::span<Value> values, Use use) {
  const double ratio = kept_segments.ratio(step);
  const std::uint32_t* at = indices.data();
  for (const Segment& segment : kept_segments.segments()) {
    const std::int64_t count = kept(segment.range.size(), ratio);
    use(values.data() + segment.range.begin, std::span(at, static_cast<std::size_t>(count)),
        kept_segments.scale(segment.range.size(), count));
    at += count;
  }
}

}  // namespace

void RandomK::draw(std::int64_t step) {
  if (step == step_) {
    return;
  }
  indices_.reserve(static_cast<std::size_t>(kept_.most()));
  indices_.resize(static_cast<std::size_t>(kept_.total(step)));
  const double ratio = kept_.ratio(step);
  std::span<std::uint32_t> left = indices_;
  for (const Segment& segment : kept_.segments()) {
    const auto count = static_cast<std::size_t>(kept(segment.range.size(), ratio));
    subsets_.draw(Draw(kept_.compression().seed, step, segment.key), segment.range.size(), left.first(count));
    left = left.subspan(count);
  }
  step_ = step;
}

void RandomK::encode(std::span<const float> values, std::int64_t step, std::byte* payload) {
  draw(step);
  auto* to = reinterpret_cast<float*>(payload);
  for_each_subset(kept_, indices_, step, values,
                  [&](const float* part, std::span<const std::uint32_t> indices, float /*unbiased*/) {
                    for (const std::uint32_t index : indices) *to++ = part[index];
                  });
}

// Only here are the values scaled: sums of scaled ones would be rounded twice.
void RandomK::decode(const std::byte* payload, std::int64_t step, std::span<float> values) {
  draw(step);
  const auto* from = reinterpret_cast<const float*>(payload);
  for_each_subset(kept_, indices_, step, values,
                  [&](float* part, std::span<const std::uint32_t> indices, float unbiased) {
                    for (const std::uint32_t index : indices) part[index] = unbiased * *from++;
                  });
}

void RandomK::take_out(const std::byte* /*payload*/, std::int64_t step, std::span<float> values) {
  draw(step);
  for_each_subset(kept_, indices_, step, values,
                  [&](float* part, std::span<const std::uint32_t> indices, float /*unbiased*/) {
                    for (const std::uint32_t index : indices) part[index] = 0;
                  });
}

void OwnRandomK::choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
                        std::span<Coordinate> chosen) {
  indices_.resize(chosen.size());
  subsets_.draw(Draw(kept_segments().compression().seed, step, key, rank_), std::ssize(values), indices_);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    chosen[i] = {.index = indices_[i], .value = values[indices_[i]]};
  }
}

}  // namespace dear::codec
