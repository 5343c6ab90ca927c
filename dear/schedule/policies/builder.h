#pragma once

#include <string>

#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// The only way to make a Schedule. Policies add lanes, steps and edges; build() checks the whole and refuses
// it with a ScheduleError that names the steps concerned:
//  - an edge to or from a step that does not exist, or from a step to itself in the same iteration
//  - a cycle within an iteration (edges of back 0 and lane order together)
//  - a layer without exactly one forward and one backward; not exactly one commit or compute lane
//  - a forward, backward or commit off the compute lane, a collective off a network lane, an update on one
//  - a backward that may run before its forward; a commit that may come before a backward
//  - a bucket whose gradients are reduced never or twice: once is one all-reduce, or several that carry all
//    of its bytes in chunks, or a reduce-scatter that is completed by one all-gather, of the gradients or,
//    after an update of the shard, of the parameters; the latter, too, may come in chunks, and then
//    reduce-scatter, update and all-gather are cut alike
//  - a reduction inside nodes that is not completed by an all-reduce of the shards across them; shards that
//    are gathered from other ranks than they were scattered to
//  - an update before its reduction, before the commit (or before the last one, see
//    [Note: updates ahead of the commit]), missing, or twice; a whole update from a mere reduce-scatter; an
//    update of a shard whose parameters are not gathered
//  - a reduction before every layer that uses one of the bucket's tensors has ended its backward. So no
//    parameter is written under a backward that reads it: what writes it, a whole update or a gather, comes
//    after its reduction
//  - a forward that may run before the parameters that it reads are whole: the update of the iteration before
//    comes first, and between the two the all-gather, in either iteration
//  - parameters gathered again without a first time, before a forward that reads them has ended, or after a
//    backward that does
//  - a broadcast of something else than buffers or rank 0's decision; either of them twice; of buffers after
//  a
//    forward that reads them, or before one of the iteration before has ended; of the decision before the
//    commit of the iteration before, or after a forward of the next one
//  - a gradient that a backward may write while the iteration before still reads it (update -> next backward)
// "Before" is judged by paths over edges and lane order, with the iterations that they cross counted.
class ScheduleBuilder {
 public:
  ScheduleBuilder(const Workload& workload, const Grouping& grouping, std::string policy);

  LaneId lane(std::string name, LaneKind kind);
  StepId add(Work work, LaneId lane);  // at the end of the lane
  ScheduleBuilder& edge(StepId from, StepId to, std::uint32_t back = 0);

  [[nodiscard]] Schedule build() &&;

 private:
  const Workload& workload_;
  const Grouping& grouping_;
  Schedule draft_;
};

}  // namespace dear
