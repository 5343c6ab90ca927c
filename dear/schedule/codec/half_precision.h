#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/kept.h"
#include "dear/schedule/codec/kernels.h"

namespace dear::codec {

// Every coordinate in fp16 or bf16, rounded to nearest even. What fp16 cannot hold becomes infinity.
class HalfPrecision final : public Reducible {
 public:
  // `dtype` is f16 or bf16.
  HalfPrecision(DType dtype, const KeptSegments& kept);
  [[nodiscard]] DType dtype() const override { return dtype_; }
  [[nodiscard]] std::int64_t elements(std::int64_t /*step*/) const override { return elements_; }
  [[nodiscard]] std::int64_t most_elements() const override { return elements_; }
  void encode(std::span<const float> values, std::int64_t step, std::byte* payload) override;
  void decode(const std::byte* payload, std::int64_t step, std::span<float> values) override;
  void take_out(const std::byte* payload, std::int64_t step, std::span<float> values) override;

 private:
  DType dtype_;
  const Kernels::Narrow* kernels_;
  std::vector<Segment> segments_;
  std::int64_t elements_ = 0;
};

}  // namespace dear::codec
