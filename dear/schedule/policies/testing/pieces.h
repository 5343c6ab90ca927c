#pragma once

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/builder.h"

// Schedules that tests put together by hand.
namespace dear::testing {

inline Workload two_layers() {
  return {.name = "two layers",
          .tensors = {{.name = "a", .elements = 4}, {.name = "b", .elements = 4}},
          .layers = {{.name = "first", .tensors = {0}}, {.name = "second", .tensors = {1}}}};
}

// A well-formed schedule of two layers in one bucket, put together piece by piece so that a test can leave
// out, repeat or replace one.
struct Pieces {
  Workload workload = two_layers();
  Grouping grouping = group(workload, AllInOne{});
  ScheduleBuilder builder{workload, grouping, "test"};
  LaneId compute = builder.lane("compute", LaneKind::compute);
  LaneId network = builder.lane("network", LaneKind::network);
  LaneId updates = builder.lane("update", LaneKind::update);

  static Communicate reduce_scatter() { return {Collective::reduce_scatter, Payload::gradients, 0}; }
  static Communicate all_reduce() { return {Collective::all_reduce, Payload::gradients, 0}; }
  static Communicate gather(Payload payload) { return {Collective::all_gather, payload, 0}; }

  // Steps 0 to 4: forward 0, forward 1, backward 1, backward 0, commit.
  void program() {
    for (const Work& work :
         {Work{Forward{0}}, Work{Forward{1}}, Work{Backward{1}}, Work{Backward{0}}, Work{Commit{}}})
      builder.add(work, compute);
  }
  // Step 5: its reduction, after the backward of both.
  StepId reduce(Communicate work) {
    const StepId step = builder.add(work, network);
    builder.edge(2, step).edge(3, step);
    return step;
  }
  StepId update(UpdateScope scope, StepId after) {
    const StepId step = builder.add(Update{scope, 0}, updates);
    builder.edge(after, step).edge(4, step);
    return step;
  }
  void publish(StepId publisher) { builder.edge(publisher, 0, 1).edge(publisher, 1, 1); }
  Schedule build() { return std::move(builder).build(); }
};

template <typename Matcher>
void expect_refused(Pieces& pieces, const Matcher& message) {
  try {
    (void)pieces.build();
    FAIL() << "the schedule was accepted";
  } catch (const ScheduleError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("schedule of policy test: "), message));
  }
}

}  // namespace dear::testing
