#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/platform/cluster/network.h"
#include "dear/predict/tune/cache.h"
#include "dear/predict/tune/session.h"
#include "dear/predict/tune/size_candidates.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/train/data_parallel/bucket_chooser.h"
#include "dear/train/tuning/tuned.h"
#include "dear/train/tuning/tuning_progress.h"
#include "dear/workload/layers/workload.h"

namespace dear::tuning {

// [Note: live tuning] Rank 0 measures how long its iterations take, and its session decides which candidate
// runs next; all ranks change to it at the end of the same step, by DataParallel's regrouping. A decision
// that is made at the end of one step travels with the next iteration ([Note: the decision of rank 0]). That
// iteration therefore still runs in the old buckets and is not measured.
//
// A drift may be the network's. The buckets that run do not show what other buckets take on another network:
// so the decision asks all ranks to measure the network again, and the session is told what the simulator
// expects of each candidate on it.
//
// [Note: pauses] A program that waits for everything between two steps, by synchronize(), may then do
// something else for a while: evaluate, or train another model. The iteration around such a pause is not
// measured, unless the iteration before had a pause too: a program that synchronises in each of its
// iterations is measured whole.
//
// [Note: tuning on a device] The host does not know how long a step took when it has ended, and a decision in
// the schedule would be a collective that the host reads. So the times of steps come later, from events, and
// every few steps the ranks meet in memory of the hosts, where rank 0 says what runs next; devices go on
// meanwhile, as hosts are ahead of them.
//
// Candidates are the bucket sizes whose groupings differ, and planned buckets. All ranks make the same list
// from rank 0's measurements; the session's prior is the simulator's time of each candidate, from the same
// measurements.
class LiveTuning final : public train::BucketChooser {
 public:
  // All ranks together. ConfigError on every rank for a method that does not exist, and for a cache that rank
  // 0 cannot use.
  LiveTuning(const train::ChooserSetting& setting, TuningOptions options);

  [[nodiscard]] Fusion start(const Workload& workload) override;
  [[nodiscard]] train::NewBuckets begin(const Workload& timed, const Link& link,
                                        const Grouping& running) override;
  void changed(double begin_seconds, double end_seconds) override;
  [[nodiscard]] Wanted iteration_ended(double now_seconds) override;
  [[nodiscard]] Wanted steps_took(const std::vector<double>& seconds, std::int64_t step) override;
  void network_measured(const Workload& timed, const Link& link, double begin_seconds,
                        double end_seconds) override;
  void synchronized() override { synchronized_ = true; }  // [Note: pauses]
  [[nodiscard]] View decision() const override {
    return tunes_ && setting_.device.empty() ? decision_ : View{};
  }
  [[nodiscard]] Standing standing() const override;
  [[nodiscard]] const TuningProgress* progress() const override { return &progress_; }

 private:
  [[nodiscard]] bool decides() const { return setting_.group.rank() == 0; }
  void look(double seconds);
  void heard();
  void decide();
  [[nodiscard]] Wanted follow();  // what was decided
  void update_progress();
  void predict(const Workload& timed, const Link& link);
  void keep();
  [[nodiscard]] std::size_t first_of_rank_0(std::size_t candidate) const;  // to begin with
  [[nodiscard]] Fusion fusion_of(std::size_t candidate) const;
  [[nodiscard]] train::NewBuckets change_to(std::size_t candidate) const;

  train::ChooserSetting setting_;
  const TuningOptions options_;
  const View decision_;

  Workload workload_;  // without times
  std::string key_;    // of this job in the cache
  tune::Learned learned_;
  bool tunes_ = false;  // since begin()
  std::int64_t iterations_ = 0;
  std::optional<double> iteration_began_;
  bool synchronized_ = false;             // since the last step
  bool synchronized_before_ = false;      // in the iteration before
  std::vector<double> first_iterations_;  // seconds of each measured iteration before begin()

  std::unique_ptr<tune::Session> session_;  // on rank 0
  bool network_asked_ = false;              // by a decision that is on its way
  bool kept_ = false;                       // in the cache, since the choice converged
  TuningProgress progress_;
};

}  // namespace dear::tuning
