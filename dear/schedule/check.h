#pragma once

#include <optional>
#include <vector>

#include "dear/fusion/grouping.h"
#include "dear/schedule/schedule.h"
#include "dear/workload/workload.h"

namespace dear {

// The rules that a schedule obeys (listed at ScheduleBuilder). ScheduleError for the first one broken. The
// order of calls matters: each relies on what those above it have made sure of. For the builder's use.
class ScheduleCheck {
 public:
  ScheduleCheck(const Schedule& schedule, const Workload& workload, const Grouping& grouping);

  void structure() const;  // of lanes, steps and edges: everything named exists and stands where it may
  // The commit, and every layer's forward and backward, by layer.
  struct Program {
    std::vector<StepId> forward, backward;
    StepId commit = 0;
  };
  [[nodiscard]] Program program() const;
  // How a bucket's gradients become new parameters: reductions, [all-gather of gradients], update,
  // [all-gather of parameters]; and [their all-gather for the backward].
  struct Passage {
    std::vector<StepId> reductions;  // one, or one for each piece
    std::optional<StepId> gathered;
    StepId update = 0, publisher = 0;  // the same without an all-gather of parameters
    std::optional<StepId> again;
  };
  [[nodiscard]] std::vector<Passage> passages() const;  // by bucket
  void precedence(const Program& program, const std::vector<Passage>& passages) const;

 private:
  void collective(StepId step) const;
  void coverage(BucketId bucket, std::vector<StepId> reductions) const;

  const Schedule& schedule_;
  const Workload& workload_;
  const Grouping& grouping_;
};

}  // namespace dear
