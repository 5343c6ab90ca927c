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

// Which tensors travel together while training: as given, planned from what the first steps took, or tuned.
// It is told of steps and answers with the change that it wants, which whoever has the engine carries out.
// For the program's thread; all ranks alike.
class BucketChoice {
 public:
  using Clock = std::function<double()>;  // seconds
  // ConfigErrors of LiveTuning.
  BucketChoice(Group group, const DataParallelOptions& options, Clock clock = now_seconds);

  // Times of layers and updates are to be measured, for what the next steps choose.
  [[nodiscard]] bool measures() const { return measures_; }
  // At the first step: what training begins with, where `given` is what was asked for.
  [[nodiscard]] Fusion first(const Workload& workload, const Fusion& given);

  struct Change {
    std::optional<Fusion> fusion;  // without one the same, in another order
    std::string why;
    double begin_seconds;  // of what it takes
  };
  // At the end of each step, or of one that was given up: `steps` were taken. `measured` says what was
  // measured since the first one.
  [[nodiscard]] std::optional<Change> step_ended(Engine& engine, std::int64_t steps,
                                                 const std::function<Workload()>& measured);
  void changed(const Change& change);  // it is in force now
  // The program waited for everything between two steps: [Note: pauses].
  void waited();
  // What was given later than the options stays.
  void end_tuning();

  [[nodiscard]] const std::optional<Engine::Profile>& profile() const { return profile_; }
  // For the engine after a change: in what rank 0's decisions travel, see Engine::Options.
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
