#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/kept.h"

namespace dear::codec {

// The reducible codecs that draw where kept() coordinates of each segment lie, the same on every rank, so
// that values alone travel, in fp32. Places says where: for_each(kept segments, step, values, use) calls
// use(place, what decoding multiplies with) for each segment that is not empty; a place has size(), and
// copy_out(), merge() and clear() as a Window has them.
template <class Places>
class DrawnAlike final : public Reducible {
 public:
  explicit DrawnAlike(KeptSegments kept) : kept_(std::move(kept)) {}
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  [[nodiscard]] std::int64_t elements(std::int64_t step) const override { return kept_.total(step); }
  [[nodiscard]] std::int64_t most_elements() const override { return kept_.most(); }

  void encode(std::span<const float> values, std::int64_t step, std::byte* payload) override {
    auto* to = reinterpret_cast<float*>(payload);
    places_.for_each(kept_, step, values, [&](const auto& place, float /*unbiased*/) {
      copy_out(place, to);
      to += place.size();
    });
  }
  // Only here are the values scaled: sums of scaled ones would be rounded twice.
  void decode(const std::byte* payload, std::int64_t step, std::span<float> values) override {
    const auto* from = reinterpret_cast<const float*>(payload);
    places_.for_each(kept_, step, values, [&](const auto& place, float unbiased) {
      merge(place, from, [unbiased](float /*value*/, float part) { return unbiased * part; });
      from += place.size();
    });
  }
  void take_out(const std::byte* /*payload*/, std::int64_t step, std::span<float> values) override {
    places_.for_each(kept_, step, values, [](const auto& place, float /*unbiased*/) { clear(place); });
  }

 private:
  KeptSegments kept_;
  Places places_;
};

}  // namespace dear::codec
