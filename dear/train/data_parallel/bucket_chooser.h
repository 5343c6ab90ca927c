#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/platform/cluster/network.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/workload/layers/workload.h"

namespace dear {
struct TuningProgress;  // train/tuning/tuning_progress.h
}

namespace dear::train {

// The training for which a BucketChooser chooses.
struct ChooserSetting {
  Group group;
  std::string policy;                   // in force
  std::vector<std::string> policies{};  // BucketChoice::policies
  bool one_copy;                        // DataParallelOptions::one_copy
  std::string device;  // that carries collectives on its streams, "c10d nccl"; "" where the group does
};

// Buckets to change to.
struct NewBuckets {
  Fusion fusion;
  std::string why;       // names the change in a trace
  std::string policy{};  // to change to as well; "" for the one in force
};

// Chooses the buckets of one DataParallel while it trains. All ranks call each method together, from the
// program's threads, and every rank must return the same. A chooser that chooses once needs start() and
// begin() alone. Times are seconds on one clock.
class BucketChooser {
 public:
  BucketChooser() = default;
  virtual ~BucketChooser() = default;
  BucketChooser(const BucketChooser&) = delete;
  BucketChooser& operator=(const BucketChooser&) = delete;

  // Returns the fusion that training begins with; called at the first step. `workload` has no times.
  [[nodiscard]] virtual Fusion start(const Workload& workload) = 0;

  // Returns the first change; called after the first measured iterations. `timed` has rank 0's times on every
  // rank, `link` is the network as rank 0 found it, and `running` is in force.
  [[nodiscard]] virtual NewBuckets begin(const Workload& timed, const Link& link,
                                         const Grouping& running) = 0;

  // The buckets became, between these times, what begin() or iteration_ended() returned.
  virtual void changed(double /*begin_seconds*/, double /*end_seconds*/) {}

  struct Wanted {
    std::optional<NewBuckets> buckets{};  // to change to
    bool measured_network = false;        // to measure the network, and to call network_measured()
  };
  // Called at the end of each step, from the first on, when the iteration's decision has come. Never returns
  // both wishes.
  [[nodiscard]] virtual Wanted iteration_ended(double /*now_seconds*/) { return {}; }

  // In place of iteration_ended(), on a device with streams, now and then at the end of a step, after as many
  // steps on every rank: that was step number `step`, and these are the seconds that steps in the running
  // buckets took of which the device has told since the last call. The decision is in force at once.
  [[nodiscard]] virtual Wanted steps_took(const std::vector<double>& /*seconds*/, std::int64_t /*step*/) {
    return {};
  }

  // The network was measured between these times; `timed` and `link` are as in begin().
  virtual void network_measured(const Workload& /*timed*/, const Link& /*link*/, double /*begin_seconds*/,
                                double /*end_seconds*/) {}

  // The program waited for everything between two steps.
  virtual void synchronized() {}

  // Returns the memory in which rank 0's decision travels in each iteration from begin() on
  // (schedule/policies/decision.h); without a buffer no decision is sent.
  [[nodiscard]] virtual View decision() const { return {}; }

  // Where the choice stands, after begin(): for metrics.
  struct Standing {
    bool converged = true;
    std::string buckets = "planned";  // in force
  };
  [[nodiscard]] virtual Standing standing() const { return {}; }

  // Returns what DataParallel::tuning() shows.
  [[nodiscard]] virtual const TuningProgress* progress() const { return nullptr; }
};

}  // namespace dear::train
