#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "dear/train/data_parallel/data_parallel_options.h"
#include "dear/train/data_parallel/watch.h"
#include "dear/train/engine/engine.h"
#include "dear/train/model/model_scan.h"

namespace dear::train {

// MismatchError on every rank where ranks check differently, ConfigError for a check that the policy cannot
// have.
void agree_on_checks(const Group& group, const DataParallelOptions& options, bool updates_in_backward);

// What one DataParallel shows and checks of its local gradients, and counts of its steps. For the program's
// thread.
class Monitoring {
 public:
  Monitoring(const Group& group, GradientCheck check, Watch::Source source)
      : rank_(group.rank()), check_(check), watch_(group, std::move(source)) {}

  [[nodiscard]] Watch& watch() { return watch_; }
  [[nodiscard]] metrics::BucketHooks& hooks() { return watch_.hooks(); }
  [[nodiscard]] metrics::StepListeners& listeners() { return watch_.listeners(); }

  [[nodiscard]] bool looks_at_gradients() const {
    return check_ != GradientCheck::none || watch_.hooks().any(HookAt::before_reduction);
  }
  // Calls the hooks before a reduction, then checks. Throws what a hook throws, and with GradientCheck::error
  // an Error that says what is not finite.
  void look_at(const Engine& engine, BucketId bucket, std::int64_t iteration);
  // Does so where one rank trains alone, and the hooks after a reduction: of gradients that have changed
  // since the last look. Clipping comes before step(), and both look.
  void look_at_all_alone(std::vector<TrainedParameter>& trained, std::int64_t iteration);

  // What the check found in this iteration; "" for nothing.
  [[nodiscard]] const std::string& nonfinite() const { return nonfinite_; }
  void share(const Group& group);  // with all ranks, which do so together: each has what all found
  // The iteration has ended.
  void count(metrics::StepListeners::End end);
  [[nodiscard]] std::int64_t given_up() const { return given_up_; }  // iterations, so far

 private:
  void found(const std::string& which, std::int64_t iteration);

  const int rank_;
  const GradientCheck check_;
  std::string nonfinite_;
  std::int64_t given_up_ = 0;
  // By parameter: the gradient that was looked at, and its version then.
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::vector<std::optional<std::pair<WeakTensor, std::uint32_t>>> seen_alone_;
  Watch watch_;
};

}  // namespace dear::train
