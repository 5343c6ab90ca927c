#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/cluster/network.h"
#include "dear/collective/group.h"
#include "dear/fusion/grouping.h"
#include "dear/fusion/size_candidates.h"
#include "dear/train/tuning.h"
#include "dear/train/tuning_progress.h"
#include "dear/tune/cache.h"
#include "dear/tune/session.h"
#include "dear/workload/workload.h"

namespace dear::train {

// [Note: live tuning] Rank 0 measures how long its iterations take, and its session decides what to try next;
// all ranks change to it at the end of the same step, by DataParallel's regrouping. A decision made at the
// end of one step travels with the next iteration ([Note: the decision of rank 0]), which therefore still
// runs in the old buckets and is not measured.
//
// A drift may be the network's, and what other buckets take on another network is not seen in those that run:
// so the decision asks all ranks to measure it again, and the session is told what the simulator expects of
// it.
//
// [Note: pauses] A program that waits for everything between two steps, by synchronize(), may then do
// something else for a while: evaluate, or train another model. The iteration around such a pause is not
// measured, unless the one before had one too: a program that synchronises in each of its iterations is
// measured whole.
//
// Candidates are the sizes that differ, and planned buckets. All ranks make the same list from rank 0's
// measurements; what the simulator says of each, from the same numbers, is where the session begins.
class LiveTuning {
 public:
  // All ranks together. ConfigError on every rank for a method that is not there, and a cache that rank 0
  // cannot use.
  LiveTuning(Group group, TuningOptions options, std::string policy, bool one_copy);

  // All ranks together, at the first step: what training begins with.
  [[nodiscard]] Fusion start(const Workload& workload);

  // All ranks together, after the first measured iterations: `timed` has rank 0's times on every rank, and
  // `running` is in force. What to change to now.
  [[nodiscard]] Fusion begin(const Workload& timed, const Link& link, const Grouping& running);
  // The buckets were changed to what begin() or iteration_ended() said, between these times.
  void changed(double begin_seconds, double end_seconds);

  struct Wanted {
    std::optional<Fusion> fusion;   // to change to
    bool measured_network = false;  // to measure the network, and to tell it to network_measured()
  };
  // [program] On every rank at the end of each step, from the first on, when the iteration's decision has
  // come; all ranks alike. Never both.
  [[nodiscard]] Wanted iteration_ended(double now_seconds);
  // All ranks together: `timed` as for begin(), the network as rank 0 found it, between these times.
  void network_measured(const Workload& timed, const Link& link, double begin_seconds, double end_seconds);
  // The program waited for everything between two steps: [Note: pauses].
  void synchronized() { synchronized_ = true; }
  // What rank 0's decision travels in from begin() on, in each iteration; before, no decision is made and the
  // view has no buffer.
  [[nodiscard]] View decision() const { return tunes_ ? decision_ : View{}; }

  [[nodiscard]] const TuningProgress& report() const { return report_; }

 private:
  [[nodiscard]] bool decides() const { return group_.rank() == 0; }
  void look(double seconds);
  void heard();
  void decide();
  void update_report();
  void predict(const Workload& timed, const Link& link);
  void keep();
  [[nodiscard]] std::size_t first_of_rank_0(std::size_t candidate) const;  // to begin with
  [[nodiscard]] Fusion fusion_of(std::size_t candidate) const;

  Group group_;
  const TuningOptions options_;
  const std::string policy_;
  const bool one_copy_;
  const View decision_;

  Workload workload_;  // without times
  std::string key_;    // in the cache
  tune::Learned learned_;
  bool tunes_ = false;  // since begin()
  std::int64_t iterations_ = 0;
  std::optional<double> iteration_began_;
  bool synchronized_ = false;             // since the last step
  bool synchronized_before_ = false;      // in the iteration before
  std::vector<double> first_iterations_;  // before begin()

  std::unique_ptr<tune::Session> session_;  // on rank 0
  bool network_asked_ = false;              // by a decision that is on its way
  bool kept_ = false;                       // in the cache, since it settled
  TuningProgress report_;
};

}  // namespace dear::train
