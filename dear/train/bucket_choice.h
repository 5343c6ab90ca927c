#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dear/base/deadline.h"
#include "dear/collective/group.h"
#include "dear/fusion/grouping.h"
#include "dear/train/data_parallel.h"
#include "dear/train/engine.h"
#include "dear/train/live_tuning.h"
#include "dear/workload/workload.h"

namespace dear::train {

// Chooses which tensors travel together while training: as given, planned from what the first steps took, or
// tuned. A BucketChoice is told that a step has ended, and answers with the change that it wants; its owner
// carries the change out. Every rank calls the same methods, each from its program's thread.
class BucketChoice {
 public:
  using Clock = std::function<double()>;  // seconds
  // Throws the ConfigErrors of LiveTuning.
  BucketChoice(Group group, const DataParallelOptions& options, Clock clock = now_seconds);

  // Whether the owner has to measure the times of layers and updates.
  [[nodiscard]] bool measures() const { return measures_; }
  // The fusion that training begins with, asked at the first step; `given` is what the options name.
  [[nodiscard]] Fusion first(const Workload& workload, const Fusion& given);

  struct Change {
    std::optional<Fusion> fusion;  // none: the same buckets in another order
    std::string why;
    double begin_seconds;  // when the ranks stopped for it
  };
  // Called at the end of each step, also of one that was given up, after `steps` steps. `measured` returns
  // the workload with the times that were measured so far.
  [[nodiscard]] std::optional<Change> step_ended(Engine& engine, std::int64_t steps,
                                                 const std::function<Workload()>& measured);
  void changed(const Change& change);  // the owner has carried it out
  // The program has waited for everything between two steps, see [Note: pauses].
  void waited();
  // Ends tuning for good: the program has named a fusion.
  void end_tuning();

  [[nodiscard]] const std::optional<Engine::Profile>& profile() const { return profile_; }
  // The memory in which rank 0's decisions travel, for the engine after a change (Engine::Options).
  [[nodiscard]] View decision() const { return tuning_ ? tuning_->decision() : View{}; }
  [[nodiscard]] const TuningProgress* progress() const { return tuning_ ? &tuning_->report() : nullptr; }

 private:
  [[nodiscard]] std::optional<Change> tune(Engine& engine);
  [[nodiscard]] Change plan(Engine& engine, const Workload& measured);

  Group group_;
  const std::string policy_;
  const bool planned_;
  const int profile_steps_;
  const Clock clock_;
  std::unique_ptr<LiveTuning> tuning_;  // null where nothing is tuned
  bool measures_;
  std::optional<Engine::Profile> profile_;
};

}  // namespace dear::train
