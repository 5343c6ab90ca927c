#pragma once

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
  // How a bucket's gradients become new parameters: reduction, [all-gather of gradients], update, [all-gather
  // of parameters]. Steps that its form lacks repeat the one before.
  struct Passage {
    StepId reduction = 0, reduced = 0, update = 0, publisher = 0;
  };
  [[nodiscard]] std::vector<Passage> passages() const;  // by bucket
  void precedence(const Program& program, const std::vector<Passage>& passages) const;

 private:
  const Schedule& schedule_;
  const Workload& workload_;
  const Grouping& grouping_;
};

}  // namespace dear
