#pragma once

#include <cstdint>

#include <torch/types.h>

#include "dear/base/vocabulary/ids.h"

namespace dear::optim {

// [Note: stochastic rounding] fp32 is rounded to bf16 up or down, with probabilities that make the mean
// right: so steps that are small beside a parameter count in the mean, where rounding to nearest loses them
// all. The random bits of an element depend on the seed, the update, the tensor and the element's place in it
// alone: results are the same for every grouping, number of ranks and policy that gives the same updates.
struct RoundingKey {
  std::uint64_t seed = 0;   // rank 0's
  std::int64_t update = 0;  // how many updates were before
};

// Rounds `count` fp32 values of a tensor, of which `offset` lie before them, to bf16. NaN stays NaN.
void round_stochastically(const float* from, at::BFloat16* to, std::int64_t count, const RoundingKey& key,
                          TensorId tensor, std::int64_t offset);

}  // namespace dear::optim
