#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/group/group.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/train/data_parallel/bucket_chooser.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/engine/engine.h"
#include "dear/train/streams/stream_clock.h"
#include "dear/workload/layers/workload.h"

namespace dear::train {

// [Note: times of a device] On a device with streams the host knows no times: what it enqueues runs later. So
// layers are timed between marks of a StreamClock, which are read when the ranks stop for the first change,
// and steps between marks at their ends, which are read when the device has come there (StepTimes). Ranks
// meet for a decision every few steps, and more seldom once buckets are chosen. What an update takes is not
// measured, and counts as nothing.

// Says when buckets, or the order of a policy that goes by a profile, change while training, and to what. A
// BucketChanges measures for the chooser of a BucketChoice: it is told that a step has ended, and answers
// with the change that the chooser wants; its owner carries the change out. Every rank calls the same
// methods, each from its program's thread.
class BucketChanges {
 public:
  using Clock = std::function<double()>;  // seconds
  // Throws the ConfigErrors of the chooser.
  // `device`: that of the parameters, where options.streams carries them.
  BucketChanges(Group group, const DataParallelOptions& options, at::Device device = at::kCPU,
                Clock clock = now_seconds);

  // Whether the owner has to measure the times of layers and updates.
  [[nodiscard]] bool measures() const { return measures_; }
  // The fusion that training begins with, asked at the first step; `given` is what the program named.
  [[nodiscard]] Fusion first(const Workload& workload, const Fusion& given);

  struct Change {
    std::optional<Fusion> fusion;  // none: the same buckets in another order
    std::string why;
    double begin_seconds;  // when the ranks stopped for it
    std::string policy{};  // to change to; "" for the one in force
  };
  // Called at the end of each step, also of one that was given up, after `steps` steps. `measured` returns
  // the workload with the times that were measured so far.
  [[nodiscard]] std::optional<Change> step_ended(Engine& engine, std::int64_t steps,
                                                 const std::function<Workload()>& measured);
  void changed(const Change& change);  // the owner has carried it out
  // The program has waited for everything between two steps.
  void waited();
  // Ends the choice for good: the program has named a fusion.
  void end_choice();
  // Other parameters are trained from now on, after `steps` steps: what was measured and chosen counts no
  // more. All ranks together.
  void begin_anew(std::int64_t steps);

  [[nodiscard]] const std::optional<EngineProfile>& profile() const { return profile_; }
  // For metrics: "off", "measuring", "trying" or "settled", and the buckets in force.
  [[nodiscard]] std::pair<std::string, std::string> standing() const;
  // The memory in which rank 0's decisions travel, for the engine after a change (Engine::Options).
  [[nodiscard]] View decision() const { return chooser_ ? chooser_->decision() : View{}; }
  // On a device with streams: where layers are at work ([Note: times of a device]). None on another.
  [[nodiscard]] streams::StreamClock* device_clock() { return device_clock_ ? &*device_clock_ : nullptr; }
  [[nodiscard]] const TuningProgress* progress() const { return chooser_ ? chooser_->progress() : nullptr; }

 private:
  [[nodiscard]] std::optional<Change> wanted(Engine& engine, std::int64_t steps);
  [[nodiscard]] BucketChooser::Wanted wanted_on_device(std::int64_t steps);
  [[nodiscard]] Link measure_link(Engine& engine);
  [[nodiscard]] Change first_change(Engine& engine, const Workload& measured);
  [[nodiscard]] Change change_to(NewBuckets buckets, double begin_seconds);

  [[nodiscard]] std::unique_ptr<BucketChooser> make_chooser() const;
  void time_on_device();
  static void stop(Engine& engine);  // until nothing is on its way

  Group group_;
  const std::shared_ptr<StreamCollectives> collectives_;  // null where the group carries gradients
  const at::Device device_;
  std::string policy_;  // in force
  const BucketChoice choice_;
  const bool one_copy_;
  const int profile_steps_;
  const Clock clock_;
  std::int64_t begun_ = 0;                  // steps before these parameters
  std::unique_ptr<BucketChooser> chooser_;  // null where buckets stay as they are
  bool measures_;
  std::optional<EngineProfile> profile_;
  // See [Note: times of a device].
  std::optional<streams::StreamClock> device_clock_;
  std::optional<streams::StepTimes> step_times_;  // on rank 0
  std::int64_t next_meeting_ = 0;                 // after so many steps
};

}  // namespace dear::train
