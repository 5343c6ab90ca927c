// What a program watches: gradients of buckets, and numbers of each step.

#include "dear/train/data_parallel/monitoring.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/engine/finite_checks.h"

namespace dear::train {

void agree_on_checks(const Group& group, const DataParallelOptions& options, bool updates_in_backward) {
  agree(group, "check of gradients and parameters",
        fmt::format("{}, {}", static_cast<int>(options.check_gradients), options.check_parameters));
  if (options.check_gradients == GradientCheck::skip && (updates_in_backward || options.compression))
    throw ConfigError(fmt::format(
        "rank {}: a check of gradients cannot skip steps {}: let it be an error, or train with policy dear, "
        "uncompressed",
        group.rank(),
        updates_in_backward ? "under policy dear-eager, which updates parameters during the backward pass"
                            : "with compression, where gradients are whole only after step()"));
}

void Monitoring::share(const Group& group) {
  const std::vector<char> mine(nonfinite_.begin(), nonfinite_.end());
  nonfinite_.clear();
  for (const std::vector<char>& text :
       agreement::all_gather_values(group, agreement::Subject::nonfinite, mine)) {
    if (!nonfinite_.empty() && !text.empty()) nonfinite_ += "; ";
    nonfinite_.append(text.begin(), text.end());
  }
}

void Monitoring::found(const std::string& which, std::int64_t iteration) {
  if (which.empty() || !nonfinite_.empty()) return;
  recorder::note_not_finite(iteration, which);
  nonfinite_ = fmt::format("rank {}: {}, in iteration {}", rank_, which, iteration);
  if (check_ == GradientCheck::error)
    throw Error(
        std::exchange(nonfinite_, "") +
        ": look at this rank's batch and at the learning rate, or let check_gradients skip such steps");
}

void Monitoring::look_at(const Engine& engine, BucketId bucket, std::int64_t iteration) {
  if (hooks().any(HookAt::before_reduction)) {
    const autograd::Unobserved unobserved;
    BucketGradients gradients = engine.model().gradients_of(bucket);
    gradients.iteration = iteration;
    hooks().run(HookAt::before_reduction, gradients);
  }
  if (check_ != GradientCheck::none) found(engine.model().nonfinite_gradients(bucket), iteration);
}

void Monitoring::look_at_all_alone(std::vector<TrainedParameter>& trained, std::int64_t iteration) {
  if (!looks_at_gradients() && !hooks().any(HookAt::after_reduction)) return;
  seen_alone_.resize(trained.size());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    torch::Tensor& gradient = trained[i].tensor.mutable_grad();
    if (!gradient.defined()) continue;
    auto& seen = seen_alone_[i];
    if (seen && seen->first._unsafe_get_target() == gradient.unsafeGetTensorImpl() &&
        seen->second == gradient._version())
      continue;
    const torch::NoGradGuard no_grad;
    if (gradient.is_sparse()) gradient = gradient.to_dense();
    if (!gradient.is_non_overlapping_and_dense()) gradient = gradient.contiguous();
    BucketGradients all{.iteration = iteration,
                        .bucket = i,
                        .flat = gradient.as_strided({gradient.numel()}, {1}),
                        .tensors = {{.name = trained[i].name, .values = gradient, .begin = 0}}};
    hooks().run(HookAt::before_reduction, all);
    if (check_ != GradientCheck::none) {
      const metrics::NonFinite nonfinite = find_nonfinite(all.flat, {0, all.flat.numel()});
      const std::string& module = trained[i].module;
      if (nonfinite.count > 0)
        found(nonfinite_text(nonfinite, all.flat.numel(), "gradient of", trained[i].name,
                             module.empty() ? "(root)" : module),
              iteration);
    }
    hooks().run(HookAt::after_reduction, all);
    seen = {WeakTensor(gradient.getIntrusivePtr()), gradient._version()};
  }
}

void Monitoring::count(metrics::StepListeners::End end) {
  if (end == metrics::StepListeners::End::given_up) ++given_up_;
  listeners().found_nonfinite(std::exchange(nonfinite_, ""));
  listeners().count(end);
}

}  // namespace dear::train
