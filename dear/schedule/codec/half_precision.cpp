#include "dear/schedule/codec/half_precision.h"

namespace dear::codec {

HalfPrecision::HalfPrecision(DType dtype, const KeptSegments& kept)
    : dtype_(dtype),
      kernels_(dtype == DType::f16 ? &kernels().f16 : &kernels().bf16),
      segments_(kept.segments()) {
  for (const Segment& segment : segments_) elements_ += segment.range.size();
}

void HalfPrecision::encode(std::span<const float> values, std::int64_t /*step*/, std::byte* payload) {
  auto* to = reinterpret_cast<std::uint16_t*>(payload);
  for (const auto& [range, key] : segments_) {
    kernels_->narrow(values.data() + range.begin, range.size(), to);
    to += range.size();
  }
}

void HalfPrecision::decode(const std::byte* payload, std::int64_t /*step*/, std::span<float> values) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(payload);
  for (const auto& [range, key] : segments_) {
    kernels_->widen(from, range.size(), values.data() + range.begin);
    from += range.size();
  }
}

void HalfPrecision::take_out(const std::byte* payload, std::int64_t /*step*/, std::span<float> values) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(payload);
  for (const auto& [range, key] : segments_) {
    kernels_->subtract(from, range.size(), values.data() + range.begin);
    from += range.size();
  }
}

}  // namespace dear::codec
