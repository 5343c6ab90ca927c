#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"
#include "dear/schedule/codec/compression.h"

namespace dear::codec {

// Feedback changes the gradients of a bucket before and after they are encoded, in the words and
// formulas of Compression: weight decay and momentum on this rank, error feedback, momentum correction. In
// each step:
//   prepare(gradients, parameters)    the gradients become m, in place; the codec encodes them
//   keep(remainder, take_out)         once what travels was taken out of m; or drop(), where the step is
//   given up
//
// It keeps one vector of floats for the residual, and two for momentum, as far as the compression has them.
// Without feedback, momentum and weight decay, no method reads or writes anything. Sums and products are
// rounded to float one by one, in the order of the formulas. One thread at a time.
// Error feedback: Karimireddy et al. 2019, arXiv 1901.09847. Momentum correction and masking: Lin et al.
// 2018, arXiv 1712.01887.
class Feedback {
 public:
  // `elements`: of the encoded part of a flat bucket, one for each in every span below. Residual and momentum
  // begin with 0. ConfigError for a compression that validate() refuses, and for less than no elements.
  Feedback(const Compression& compression, std::int64_t elements);

  // Makes m of the gradients. `parameters` may be empty without weight decay. The state stays that of the
  // step before until keep(); without keep() since the last prepare(), this one replaces it. ConfigError for
  // spans of another size.
  void prepare(std::span<float> gradients, std::span<const float> parameters);

  // Zeroes in a vector the coordinates that travelled, as take_out() of a codec does.
  using TakeOut = std::function<void(std::span<float>)>;

  // Ends the step: `remainder`, which is m without what travelled, becomes the residual, and the momentum of
  // this step the momentum. With correction it is masked first: `take_out` is called with it. `remainder` may
  // be empty without feedback, `take_out` without correction. ConfigError if they are then needed, for
  // another size, and where prepare() was not called since the last keep() or drop(); nothing has changed
  // then.
  void keep(std::span<const float> remainder, const TakeOut& take_out = nullptr);

  // Gives the step up (an overflow, a step discarded): the state is that of before prepare(). Without a
  // prepare() nothing changes.
  void drop() { prepared_ = false; }

  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] std::int64_t bytes() const {  // of the vectors
    return static_cast<std::int64_t>((residual_.size() + momentum_.size() + next_momentum_.size()) *
                                     sizeof(float));
  }

  // The state of these elements, to be saved, or moved to another bucket; empty without feedback, or without
  // momentum. Valid until the next keep(). ConfigError for elements that are not there.
  std::span<float> residual(Range range) { return part(residual_, range); }
  std::span<float> momentum(Range range) { return part(momentum_, range); }

 private:
  std::span<float> part(std::vector<float>& state, Range range) const;

  Compression compression_;
  std::int64_t elements_;
  std::vector<float> residual_;
  std::vector<float> momentum_;
  std::vector<float> next_momentum_;  // of the step that is under way
  bool prepared_ = false;
};

}  // namespace dear::codec
