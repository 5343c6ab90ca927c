#pragma once

#include <cstdint>
#include <vector>

#include "dear/collective/group.h"
#include "dear/exec/drive.h"

namespace dear::wire {

// Executor of the network lane that communicates for real: a schedule's collectives on the flat buffers of
// its buckets, issued on a group. Gradients are averaged over ranks.
class BucketWire : public exec::LaneExecutor {
 public:
  // The same views on every rank, by bucket, as lay_out() makes them.
  struct Flat {
    View parameters;
    View gradients;
    std::int64_t bucket_bytes = 0;  // without padding: what chunks are counted in
  };

  // `decision` carries rank 0's (schedule/decision.h); without one a step that does is a ScheduleError, as
  // are other collectives than of buckets. `ended` is called from the group's thread; it, and this object,
  // must outlive every collective started.
  BucketWire(Group group, std::vector<Flat> buckets, exec::OnStepEnd ended, View decision = {});

  void start(Instance which, const Step& step) override;

 private:
  [[nodiscard]] Request request_of(const Communicate& work) const;

  Group group_;
  std::vector<Flat> buckets_;
  exec::OnStepEnd ended_;
  View decision_;
};

}  // namespace dear::wire
