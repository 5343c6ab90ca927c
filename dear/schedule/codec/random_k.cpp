#include "dear/schedule/codec/random_k.h"

namespace dear::codec {

void DrawnSubsets::draw(const KeptSegments& kept_segments, std::int64_t step) {
  if (step == step_) {
    return;
  }
  indices_.reserve(static_cast<std::size_t>(kept_segments.most()));
  indices_.resize(static_cast<std::size_t>(kept_segments.total(step)));
  const double ratio = kept_segments.ratio(step);
  std::span<std::uint32_t> left = indices_;
  for (const Segment& segment : kept_segments.segments()) {
    const auto count = static_cast<std::size_t>(kept(segment.range.size(), ratio));
    subsets_.draw(Draw(kept_segments.compression().seed, step, segment.key), segment.range.size(),
                  left.first(count));
    left = left.subspan(count);
  }
  step_ = step;
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
