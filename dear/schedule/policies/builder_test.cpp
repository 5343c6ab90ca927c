#include "dear/schedule/policies/builder.h"

#include <functional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/testing/pieces.h"

namespace dear::builder_test {
namespace {

using dear::testing::expect_refused;
using dear::testing::Pieces;
using dear::testing::two_layers;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(Builder, AcceptsEachFormOfPassage) {
  Pieces whole;
  whole.program();
  whole.publish(whole.update(UpdateScope::whole, whole.reduce(Pieces::all_reduce())));
  const Schedule reduced = whole.build();
  EXPECT_EQ(reduced.policy(), "test");
  EXPECT_EQ(reduced.layer_count(), 2U);
  EXPECT_EQ(reduced.bucket_count(), 1U);
  EXPECT_EQ(reduced.forward_of(1), 1U);
  EXPECT_EQ(reduced.backward_of(0), 3U);
  EXPECT_EQ(reduced.commit(), 4U);
  EXPECT_EQ(reduced.update_of(0), 6U);
  EXPECT_EQ(reduced.publishers_of(0).front(), 6U);

  Pieces replicated;
  replicated.program();
  const StepId scattered = replicated.reduce(Pieces::reduce_scatter());
  const StepId gathered = replicated.builder.add(Pieces::gather(Payload::gradients), replicated.network);
  replicated.publish(replicated.update(UpdateScope::whole, gathered));
  EXPECT_EQ(replicated.build().publishers_of(0).front(), 7U);
  EXPECT_EQ(scattered, 5U);

  Pieces sharded;
  sharded.program();
  const StepId updated = sharded.update(UpdateScope::shard, sharded.reduce(Pieces::reduce_scatter()));
  const StepId published = sharded.builder.add(Pieces::gather(Payload::parameters), sharded.network);
  sharded.builder.edge(updated, published);
  sharded.publish(published);
  const Schedule schedule = sharded.build();
  EXPECT_EQ(schedule.update_of(0), updated);
  EXPECT_EQ(schedule.publishers_of(0).front(), published);
}

TEST(Builder, RefusesUnknownLane) {
  Pieces pieces;
  EXPECT_THROW(pieces.builder.add(Commit{}, 3), ScheduleError);
}

TEST(Builder, RefusesUnknownLayerOrBucket) {
  Pieces layer;
  layer.program();
  layer.builder.add(Forward{2}, layer.compute);
  expect_refused(layer, ContainsRegex("step 5.* layer 2"));
  Pieces bucket;
  bucket.program();
  bucket.builder.add(Update{UpdateScope::whole, 1}, bucket.updates);
  expect_refused(bucket, ContainsRegex("step 5.* concerns bucket 1"));
}

TEST(Builder, RefusesEdgesOfStepsThatDoNotExist) {
  Pieces pieces;
  pieces.program();
  pieces.builder.edge(1, 9);
  expect_refused(pieces, HasSubstr("the edge from step 1 to step 9"));
}

TEST(Builder, RefusesAStepThatWaitsForItself) {
  Pieces pieces;
  pieces.program();
  pieces.builder.edge(1, 1);
  expect_refused(pieces, ContainsRegex("step 1 .*itself"));
}

TEST(Builder, AcceptsAStepThatFollowsItself) {
  Pieces pieces;
  pieces.program();
  pieces.publish(pieces.update(UpdateScope::whole, pieces.reduce(Pieces::all_reduce())));
  pieces.builder.edge(1, 1, 1);
  EXPECT_NO_THROW((void)pieces.build());
}

TEST(Builder, RefusesACycleOfEdgesAndLaneOrder) {
  Pieces pieces;
  pieces.program();
  pieces.publish(pieces.update(UpdateScope::whole, pieces.reduce(Pieces::all_reduce())));
  pieces.builder.edge(5, 2);
  expect_refused(pieces, AllOf(HasSubstr("no step of the cycle"), HasSubstr("step 2 (backward 1)"),
                               HasSubstr("step 5 (all-reduce")));
}

TEST(Builder, RefusesAnythingButOneComputeLane) {
  Pieces two;
  two.builder.lane("second", LaneKind::compute);
  expect_refused(two, HasSubstr("2 compute lanes"));
  const Workload workload = two_layers();
  const Grouping grouping = group(workload, AllInOne{});
  EXPECT_THROW((void)ScheduleBuilder(workload, grouping, "none").build(), ScheduleError);
}

TEST(Builder, RefusesWorkOnALaneOfAnotherKind) {
  const auto refused = [](const Work& work, LaneId Pieces::* lane, const char* message) {
    Pieces pieces;
    pieces.program();
    pieces.builder.add(work, pieces.*lane);
    expect_refused(pieces, ContainsRegex(message));
  };
  refused(Forward{0}, &Pieces::network, "step 5 .*network");
  refused(Backward{0}, &Pieces::updates, "step 5 .*update lane");
  refused(Commit{}, &Pieces::network, "step 5 .*network");
  refused(Pieces::all_reduce(), &Pieces::compute, "step 5 .*compute");
  refused(Pieces::all_reduce(), &Pieces::updates, "step 5 .*update lane");
  refused(Update{UpdateScope::whole, 0}, &Pieces::network, "step 5 .*network");
}

TEST(Builder, RefusesMissingAndRepeatedProgramSteps) {
  const auto refused = [](std::initializer_list<Work> works, const char* message) {
    Pieces pieces;
    for (const Work& work : works) pieces.builder.add(work, pieces.compute);
    expect_refused(pieces, ContainsRegex(message));
  };
  refused({Forward{0}, Backward{1}, Backward{0}, Commit{}}, "forward of layer 1");
  refused({Forward{0}, Forward{1}, Backward{1}, Commit{}}, "backward of layer 0");
  refused({Forward{0}, Forward{1}, Backward{1}, Backward{0}}, "commit");
  refused({Forward{0}, Forward{1}, Forward{1}, Backward{1}, Backward{0}, Commit{}}, "step 1 .*step 2 .*same");
  refused({Forward{0}, Forward{1}, Backward{1}, Backward{0}, Backward{1}, Commit{}},
          "step 2 .*step 4 .*same");
  refused({Forward{0}, Forward{1}, Backward{1}, Backward{0}, Commit{}, Commit{}}, "step 4 .*step 5 .*same");
}

TEST(Builder, RefusesGradientsNeverOrTwiceReduced) {
  Pieces never;
  never.program();
  expect_refused(never, HasSubstr("bucket 0 are never reduced"));
  Pieces twice;
  twice.program();
  twice.reduce(Pieces::all_reduce());
  twice.reduce(Pieces::reduce_scatter());
  expect_refused(twice, ContainsRegex("bucket 0 is reduced twice.* step 5 .* step 6"));
}

TEST(Builder, RefusesUpdatesMissingOrTwice) {
  Pieces missing;
  missing.program();
  missing.reduce(Pieces::all_reduce());
  expect_refused(missing, HasSubstr("bucket 0 is never updated"));
  Pieces twice;
  twice.program();
  const StepId reduced = twice.reduce(Pieces::all_reduce());
  twice.update(UpdateScope::whole, reduced);
  twice.update(UpdateScope::shard, reduced);
  expect_refused(twice, ContainsRegex("bucket 0 is updated twice.* step 6 .* step 7"));
}

TEST(Builder, RefusesPassagesThatDoNotFitTogether) {
  struct Case {
    Communicate reduction;
    UpdateScope scope;
    std::vector<Communicate> gathers;
    const char* message;
  };
  const std::vector<Case> cases = {
      {Pieces::reduce_scatter(), UpdateScope::whole, {}, "step 6 .*only a shard"},
      {Pieces::reduce_scatter(),
       UpdateScope::whole,
       {Pieces::gather(Payload::parameters)},
       "step 6 .*only a shard"},
      {Pieces::reduce_scatter(), UpdateScope::shard, {}, "step 6 .*stale"},
      {Pieces::reduce_scatter(), UpdateScope::shard, {Pieces::gather(Payload::gradients)}, "step 6 .*stale"},
      {Pieces::reduce_scatter(),
       UpdateScope::shard,
       {Pieces::gather(Payload::gradients), Pieces::gather(Payload::parameters)},
       "bucket 0 is gathered twice.* step 7 .* step 8"},
      {Pieces::all_reduce(), UpdateScope::shard, {}, "step 6 .*stale"},
      {Pieces::all_reduce(),
       UpdateScope::whole,
       {Pieces::gather(Payload::gradients)},
       "step 7 .*repeats what step 5"},
      {Pieces::all_reduce(), UpdateScope::whole, {Pieces::gather(Payload::parameters)}, "step 7 .*repeats"},
      {{Collective::all_reduce, Payload::parameters, 0},
       UpdateScope::whole,
       {},
       "step 5 \\(all-reduce.*add up parameters"},
      {{Collective::reduce_scatter, Payload::parameters, 0},
       UpdateScope::shard,
       {},
       "step 5 \\(reduce-scatter.*add up parameters"},
      {{Collective::all_to_all, Payload::gradients, 0}, UpdateScope::whole, {}, "step 5 .*does not exist"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.message);
    Pieces pieces;
    pieces.program();
    pieces.publish(pieces.update(one.scope, pieces.reduce(one.reduction)));
    for (const Communicate& gather : one.gathers) pieces.builder.add(gather, pieces.network);
    expect_refused(pieces, ContainsRegex(one.message));
  }
}

TEST(Builder, RefusesABackwardBeforeItsForward) {
  Pieces pieces;
  for (const Work& work :
       {Work{Forward{0}}, Work{Backward{1}}, Work{Forward{1}}, Work{Backward{0}}, Work{Commit{}}})
    pieces.builder.add(work, pieces.compute);
  pieces.publish(pieces.update(UpdateScope::whole, pieces.reduce(Pieces::all_reduce())));
  expect_refused(pieces, ContainsRegex("step 1 .*before step 2 "));
}

TEST(Builder, RefusesACommitBeforeABackward) {
  Pieces pieces;
  for (const Work& work :
       {Work{Forward{0}}, Work{Forward{1}}, Work{Backward{1}}, Work{Commit{}}, Work{Backward{0}}})
    pieces.builder.add(work, pieces.compute);
  pieces.publish(pieces.update(UpdateScope::whole, pieces.reduce(Pieces::all_reduce())));
  expect_refused(pieces, ContainsRegex("step 3 .*before step 4 "));
}

TEST(Builder, RefusesAReductionBeforeABackwardThatAddsToIt) {
  Pieces pieces;
  pieces.program();
  const StepId reduced = pieces.builder.add(Pieces::all_reduce(), pieces.network);
  pieces.builder.edge(2, reduced);  // not after backward 0
  pieces.publish(pieces.update(UpdateScope::whole, reduced));
  expect_refused(pieces, ContainsRegex("step 5 .*before step 3 "));
}

TEST(Builder, RefusesAReductionBeforeEveryUserOfATiedTensor) {
  Pieces pieces;
  pieces.workload.layers[1].tensors = {0, 1};
  Grouping per_tensor(pieces.workload, {{.tensors = {0}, .bytes = 16, .dtype = DType::f32},
                                        {.tensors = {1}, .bytes = 16, .dtype = DType::f32}});
  pieces.grouping = per_tensor;
  pieces.program();
  for (const BucketId bucket : {1U, 0U}) {
    const StepId reduced =
        pieces.builder.add(Communicate{Collective::all_reduce, Payload::gradients, bucket}, pieces.network);
    pieces.builder.edge(2, reduced);  // bucket 0 has to wait for backward 0 too
    const StepId updated = pieces.builder.add(Update{UpdateScope::whole, bucket}, pieces.updates);
    pieces.builder.edge(reduced, updated).edge(4, updated);
    pieces.publish(updated);
  }
  expect_refused(pieces, ContainsRegex("step 7 .*before step 3 "));
}

TEST(Builder, RefusesAnUpdateBeforeItsReductionOrTheCommit) {
  Pieces reduction;
  reduction.program();
  reduction.reduce(Pieces::all_reduce());
  reduction.publish(reduction.update(UpdateScope::whole, 4));
  expect_refused(reduction, ContainsRegex("step 6 .*before step 5 "));
  Pieces commit;
  commit.program();
  const StepId reduced = commit.reduce(Pieces::all_reduce());
  const StepId updated = commit.builder.add(Update{UpdateScope::whole, 0}, commit.updates);
  commit.builder.edge(reduced, updated);
  commit.publish(updated);
  expect_refused(commit, ContainsRegex("step 6 .*before step 4 "));
}

TEST(Builder, RefusesAGatherBeforeWhatItGathers) {
  Pieces gradients;
  gradients.program();
  const StepId gathered = gradients.builder.add(Pieces::gather(Payload::gradients), gradients.network);
  gradients.reduce(Pieces::reduce_scatter());
  gradients.publish(gradients.update(UpdateScope::whole, gathered));
  expect_refused(gradients, ContainsRegex("step 5 .*before step 6 "));

  Pieces parameters;
  parameters.program();
  parameters.update(UpdateScope::shard, parameters.reduce(Pieces::reduce_scatter()));
  parameters.publish(parameters.builder.add(Pieces::gather(Payload::parameters), parameters.network));
  expect_refused(parameters, ContainsRegex("step 7 .*before step 6 "));
}

TEST(Builder, RefusesAForwardBeforeItsParametersAreWhole) {
  Pieces nothing;
  nothing.program();
  nothing.builder.edge(nothing.update(UpdateScope::whole, nothing.reduce(Pieces::all_reduce())), 3, 1);
  nothing.builder.edge(6, 2, 1);
  expect_refused(nothing, ContainsRegex("step 0 .*before step 6 .*iteration before"));
  Pieces late;  // an edge that crosses two iterations leaves parameters one iteration stale
  late.program();
  const StepId updated = late.update(UpdateScope::whole, late.reduce(Pieces::all_reduce()));
  late.builder.edge(updated, 1, 1).edge(updated, 0, 2);
  expect_refused(late, ContainsRegex("step 0 .*before step 6 "));
}

TEST(Builder, RefusesABackwardThatWritesGradientsStillRead) {
  Pieces pieces;
  pieces.workload.layers[1].tensors = {};  // its forward waits for nothing, yet stands before all backwards
  pieces.workload.layers[0].tensors = {0, 1};
  pieces.program();
  pieces.update(UpdateScope::whole, pieces.reduce(Pieces::all_reduce()));
  expect_refused(pieces, ContainsRegex("step 3 .*before step 6 .*iteration before"));
}

TEST(Builder, JudgesBeforeByPathsOverLanes) {
  // The commit stands after both backwards on its lane, so one edge from it says what two would.
  Pieces pieces;
  pieces.program();
  const StepId reduced = pieces.builder.add(Pieces::all_reduce(), pieces.network);
  pieces.builder.edge(4, reduced);
  const StepId updated = pieces.builder.add(Update{UpdateScope::whole, 0}, pieces.updates);
  pieces.builder.edge(reduced, updated).edge(updated, 0, 1);
  EXPECT_NO_THROW((void)pieces.build());
}

// Gathers at the beginning of the iteration, before the forwards of both layers, what the last has updated;
// and again before the backwards, where asked for.
struct Sharded : Pieces {
  StepId gathered = 0, again = 0, updated = 0;
  explicit Sharded(bool twice) {
    program();
    gathered = builder.add(gather(Payload::parameters), network);
    if (twice) again = builder.add(gather(Payload::parameters_again), network);
    updated = update(UpdateScope::shard, reduce(reduce_scatter()));
    builder.edge(updated, 2, 1).edge(updated, 3, 1);
  }
};

TEST(Builder, AcceptsParametersGatheredInTheNextIteration) {
  Sharded once(false);
  once.builder.edge(once.updated, once.gathered, 1).edge(once.gathered, 0);
  EXPECT_EQ(once.build().publishers_of(0).front(), once.gathered);
  Sharded twice(true);
  twice.builder.edge(twice.updated, twice.gathered, 1).edge(twice.gathered, 0);
  twice.builder.edge(1, twice.again).edge(twice.again, 2);
  const Schedule schedule = twice.build();
  EXPECT_EQ(schedule.publishers_of(0).front(), twice.gathered);
  EXPECT_EQ(name_of(schedule.steps()[twice.again].work), "all-gather of parameters again, bucket 0");
}

TEST(Builder, RefusesParametersGatheredTooEarlyOrTooLate) {
  Sharded late(false);  // the forwards of the iteration after
  late.builder.edge(late.updated, late.gathered, 1).edge(late.gathered, 0, 1);
  expect_refused(late, ContainsRegex("step 0 .*before step 5 "));
  Sharded early(false);  // without what the iteration before has updated
  early.builder.edge(early.updated, early.gathered, 2).edge(early.gathered, 0);
  expect_refused(early, ContainsRegex("step 5 .*before step 7 "));
}

TEST(Builder, RefusesParametersGatheredAgainAtTheWrongTime) {
  const auto refused = [](auto change, const char* message) {
    SCOPED_TRACE(message);
    Sharded sharded(true);
    sharded.builder.edge(sharded.updated, sharded.gathered, 1).edge(sharded.gathered, 0);
    change(sharded);
    expect_refused(sharded, ContainsRegex(message));
  };
  refused([](Sharded& one) { one.builder.edge(0, one.again).edge(one.again, 2); }, "step 6 .*before step 1 ");
  refused([](Sharded& one) { one.builder.edge(1, one.again).edge(one.again, 3); }, "step 2 .*before step 6 ");
  refused(
      [](Sharded& one) {
        one.builder.edge(1, one.again).edge(one.again, 2);
        one.builder.add(Pieces::gather(Payload::parameters_again), one.network);
      },
      "bucket 0 .*again twice.* step 6 ");
  Pieces alone;
  alone.program();
  alone.builder.add(Pieces::gather(Payload::parameters_again), alone.network);
  alone.publish(alone.update(UpdateScope::whole, alone.reduce(Pieces::all_reduce())));
  expect_refused(alone, ContainsRegex("step 5 .*no first time"));
}

TEST(Builder, BroadcastsBuffersBetweenForwards) {
  const auto with = [](Pieces& pieces, const std::vector<Communicate>& broadcasts) {
    pieces.program();
    for (const Communicate& work : broadcasts) pieces.builder.add(work, pieces.network);  // step 5
    pieces.publish(pieces.update(UpdateScope::whole, pieces.reduce(Pieces::all_reduce())));
  };
  const Communicate buffers{Collective::broadcast, Payload::buffers};
  Pieces good;
  with(good, {buffers});
  good.builder.edge(5, 0).edge(1, 5, 1);
  EXPECT_EQ(name_of(good.build().steps()[5].work), "broadcast of buffers");
  Pieces late;
  with(late, {buffers});
  late.builder.edge(5, 1).edge(1, 5, 1);
  expect_refused(late, ContainsRegex("step 0 .*before step 5 "));
  Pieces early;  // on a lane of its own, where it follows nothing but itself
  const LaneId own = early.builder.lane("second network", LaneKind::network);
  with(early, {});
  early.builder.add(buffers, own);
  early.builder.edge(7, 0);
  expect_refused(early, ContainsRegex("step 7 .*before step 0 .*iteration before"));
  Pieces twice;
  with(twice, {buffers, buffers});
  twice.builder.edge(5, 0).edge(6, 0).edge(1, 5, 1).edge(1, 6, 1);
  expect_refused(twice, ContainsRegex("step 5 .*step 6 .*same"));
  for (const Communicate& none : {Communicate{Collective::broadcast, Payload::gradients, 0},
                                  Communicate{Collective::all_reduce, Payload::buffers},
                                  Communicate{Collective::broadcast, Payload::parameters, 0}}) {
    Pieces pieces;
    with(pieces, {none});
    expect_refused(pieces, HasSubstr("does not exist"));
  }
}

}  // namespace
}  // namespace dear::builder_test
