#pragma once

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

namespace dear::streams {

// While it lives, operators of this thread wait for no bucket, and autograd does not record them.
struct OwnOperators {
  const at::DisableRecordFunctionGuard unobserved{};
  const c10::AutoGradMode no_grad{false};
};

}  // namespace dear::streams
