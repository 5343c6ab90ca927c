#include "dear/train/metrics/bucket_hooks.h"

#include <exception>

#include <fmt/format.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"

namespace dear::metrics {

RemovableHandle BucketHooks::add(BucketHook hook, HookAt at) {
  if (!hook)
    throw ConfigError(fmt::format("rank {}: a bucket hook is empty: give a function", group_.rank()));
  return (at == HookAt::before_reduction ? before_ : after_).add(std::move(hook));
}

void BucketHooks::run(HookAt at, BucketGradients& gradients) {
  const torch::NoGradGuard no_grad;
  try {
    (at == HookAt::before_reduction ? before_ : after_).for_each([&](const BucketHook& hook) {
      hook(gradients);
    });
  } catch (const std::exception& error) {
    group_.abort(fmt::format("rank {}: a hook {} the reduction of bucket {} failed in iteration {}: {}",
                             group_.rank(), at == HookAt::before_reduction ? "before" : "after",
                             gradients.bucket, gradients.iteration, error.what()));
    throw;
  }
}

}  // namespace dear::metrics
