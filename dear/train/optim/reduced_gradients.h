#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dear/base/vocabulary/dtype.h"

namespace dear::optim {

// The mean gradients of one iteration as far as they lie on this rank, after the reductions and before the
// updates: what is asked of them, and what is done to them, between backward and step(). Spans of memory,
// each of one tensor at most. For the program's thread, while no collective is at work on them.
//
// [Note: counted and held] Of the elements that this rank holds it updates all. Of those it counts some, so
// that each element of the model is counted on one rank. Where updates are of shards both are the shards;
// where every rank updates everything each rank counts a part, which is its share of the work.
class ReducedGradients {
 public:
  // ConfigError for a type that no gradient has. `data` must outlive this object.
  void add_counted(void* data, std::int64_t count, DType dtype) { add(counted_, data, count, dtype); }
  void add_held(void* data, std::int64_t count, DType dtype) { add(held_, data, count, dtype); }

  // Over what is counted: the sum of |x|^p, added up in double precision; for an infinite p the largest |x|.
  // NaN where an element is NaN.
  [[nodiscard]] double power_sum(double p) const;
  [[nodiscard]] bool all_finite() const;

  // Scales what is held. Spans that are marked as unused stay so, and no other becomes so: see [Note: unused
  // parameters]. The factor is rounded to the precision in which elements of the type are computed.
  void scale(double factor);
  // To at least -limit and at most limit; NaN stays.
  void clamp(double limit);

 private:
  struct Span {
    void* data;
    std::int64_t count;
    DType dtype;
  };
  static void add(std::vector<Span>& spans, void* data, std::int64_t count, DType dtype);

  std::vector<Span> counted_, held_;
};

}  // namespace dear::optim
