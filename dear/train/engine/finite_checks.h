#pragma once

#include <cstdint>
#include <string>

#include <torch/types.h>

#include "dear/base/vocabulary/range.h"
#include "dear/train/metrics/nonfinite.h"

namespace dear::train {

// Looks at elements of a vector on the CPU.
metrics::NonFinite find_nonfinite(const torch::Tensor& flat, const Range& range);
// "3 of 64 elements of the gradient of 'body.weight', layer body, are NaN or infinite, the first at index 5";
// `what` is "gradient of" or "parameter".
std::string nonfinite_text(const metrics::NonFinite& found, std::int64_t elements, const char* what,
                           const std::string& tensor, const std::string& layer);

}  // namespace dear::train
