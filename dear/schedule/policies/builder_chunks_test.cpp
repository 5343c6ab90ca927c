#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/testing/pieces.h"

// Buckets that travel in chunks, and those whose shards lie inside nodes.
namespace dear::builder_chunks_test {
namespace {

using dear::testing::expect_refused;
using dear::testing::Pieces;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// Bucket 0 has 32 bytes. Every reduction comes before the update.
void reduce_in(Pieces& pieces, const std::vector<Communicate>& reductions) {
  pieces.program();
  const StepId updated = pieces.builder.add(Update{UpdateScope::whole, 0}, pieces.updates);
  pieces.builder.edge(4, updated);
  pieces.publish(updated);
  for (const Communicate& work : reductions) pieces.builder.edge(pieces.reduce(work), updated);
}
Communicate chunk(std::int64_t begin, std::int64_t end) {
  return {Collective::all_reduce, Payload::gradients, 0, {begin, end}};
}

TEST(Builder, AcceptsPiecesThatCarryEveryByteOnce) {
  Pieces pieces;
  reduce_in(pieces, {chunk(16, 32), chunk(0, 4), chunk(4, 16)});
  const Schedule schedule = pieces.build();
  EXPECT_EQ(name_of(schedule.steps()[6].work), "all-reduce of gradients, bucket 0, bytes 16 to 32");
  Pieces other;
  reduce_in(other, {chunk(16, 32), chunk(0, 8), chunk(8, 16)});
  EXPECT_NE(other.build().digest(), schedule.digest());
}

TEST(Builder, AcceptsPiecesThatFollowOneAnother) {
  Pieces pieces;
  pieces.program();
  const StepId first = pieces.reduce(chunk(0, 16));
  const StepId second = pieces.builder.add(chunk(16, kWholeBucket.end), pieces.network);
  pieces.builder.edge(first, second);
  const StepId updated = pieces.update(UpdateScope::whole, first);
  pieces.builder.edge(second, updated);
  pieces.publish(updated);
  EXPECT_EQ(name_of(pieces.build().steps()[second].work), "all-reduce of gradients, bucket 0, bytes from 16");
}

TEST(Builder, RefusesChunksThatAreNoPartition) {
  const auto refused = [](const std::vector<Communicate>& reductions, const char* message) {
    SCOPED_TRACE(message);
    Pieces pieces;
    reduce_in(pieces, reductions);
    expect_refused(pieces, ContainsRegex(message));
  };
  refused({chunk(0, 16)}, "bytes 16 to 32 of bucket 0 ");
  refused({chunk(0, 8), chunk(16, 32)}, "bytes 8 to 16 of bucket 0 ");
  refused({chunk(4, 32)}, "bytes 0 to 4 of bucket 0 ");
  refused({chunk(0, 20), chunk(16, 32)}, "bucket 0 is reduced twice.* step 6 .* step 7 ");
  refused({Pieces::all_reduce(), chunk(16, 32)}, "bucket 0 is reduced twice");
  refused({chunk(0, 32), chunk(8, 8)}, "step 7 .*carries nothing");
  refused({chunk(0, 32), chunk(32, 40)}, "carries nothing");
  refused({chunk(-4, 32)}, "carries nothing");
  refused({{Collective::reduce_scatter, Payload::gradients, 0, {0, 16}}, chunk(16, 32)},
          "bucket 0 is scattered in part");
}

// Bucket 0 scattered, updated and gathered in two chunks that go by themselves.
struct Scattered : Pieces {
  Range of_update{0, 16}, of_gather{0, 16};  // of the first
  OptionsOf options = OptionsOf::this_commit;
  bool after_last_commit = false;
  Schedule made() {
    program();
    for (const Range& chunk : {Range{0, 16}, Range{16, 32}}) {
      const bool first = chunk.begin == 0;
      const StepId scattered =
          reduce({Collective::reduce_scatter, Payload::gradients, 0, chunk, ProcessGroup::all});
      const StepId updated =
          builder.add(Update{UpdateScope::shard, 0, first ? of_update : chunk, options}, updates);
      builder.edge(scattered, updated).edge(updated, 2, 1).edge(updated, 3, 1);
      if (options == OptionsOf::this_commit) builder.edge(4, updated);
      if (after_last_commit) builder.edge(4, updated, 1);
      const StepId gathered = builder.add(
          Communicate{Collective::all_gather, Payload::parameters, 0, first ? of_gather : chunk}, network);
      builder.edge(updated, gathered).edge(gathered, 0, 1).edge(gathered, 1, 1);
    }
    return build();
  }
};

TEST(Builder, AcceptsPiecesThatAreScatteredUpdatedAndGathered) {
  Scattered pieces;
  const Schedule schedule = pieces.made();
  ASSERT_EQ(schedule.publishers_of(0).size(), 2U);
  ASSERT_EQ(schedule.updates_of(0).size(), 2U);
  EXPECT_EQ(name_of(schedule.steps()[schedule.updates_of(0)[1]].work),
            "update of shard, bucket 0, bytes 16 to 32");
  EXPECT_EQ(name_of(schedule.steps()[schedule.publishers_of(0)[0]].work),
            "all-gather of parameters, bucket 0, bytes 0 to 16");
}

TEST(Builder, RefusesChunksThatAreCutInDifferentWays) {
  const auto refusal = [](Scattered& pieces) {
    try {
      (void)pieces.made();
    } catch (const ScheduleError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  Scattered update, gather, both;
  update.of_update = {0, 8};
  EXPECT_THAT(refusal(update), ContainsRegex("bytes 0 to 8.* other bytes"));
  gather.of_gather = kWholeBucket;
  EXPECT_THAT(refusal(gather), ContainsRegex("all-gather.* other bytes"));
  both.of_update = both.of_gather = {16, 32};
  EXPECT_THAT(refusal(both), HasSubstr("bucket 0 is never updated"));
}

TEST(Builder, AnUpdateAheadOfTheCommitFollowsTheLastOne) {
  Scattered ahead;
  ahead.options = OptionsOf::last_commit;
  const std::uint64_t digest = ahead.made().digest();  // the order of the compute lane says so
  Scattered stated;
  stated.options = OptionsOf::last_commit;
  stated.after_last_commit = true;
  EXPECT_NE(stated.made().digest(), digest);
  Scattered behind;
  EXPECT_NE(behind.made().digest(), digest);
}

// Bucket 0 scattered inside nodes, with everything that completes it but what is taken away.
struct InNodes : Pieces {
  ProcessGroup gather = ProcessGroup::node;
  int all_reduces = 1;
  Communicate scatter{Collective::reduce_scatter, Payload::gradients, 0, kWholeBucket, ProcessGroup::node};
  Communicate across{Collective::all_reduce, Payload::gradients, 0, kWholeBucket, ProcessGroup::across_nodes};
  Schedule made() {
    program();
    StepId reduced = reduce(scatter);
    for (int i = 0; i < all_reduces; ++i) {
      const StepId added = builder.add(across, network);
      builder.edge(reduced, added);
      reduced = added;
    }
    const StepId updated = update(UpdateScope::shard, reduced);
    const StepId gathered = builder.add(
        Communicate{Collective::all_gather, Payload::parameters, 0, kWholeBucket, gather}, network);
    builder.edge(updated, gathered);
    publish(gathered);
    return build();
  }
};

TEST(Builder, ShardsInsideNodesAreAddedUpAcrossThem) {
  InNodes whole;
  EXPECT_EQ(name_of(whole.made().steps()[6].work), "all-reduce of gradients across nodes, bucket 0");
  const auto expect = [](InNodes& steps, const char* message) {
    try {
      (void)steps.made();
      ADD_FAILURE() << "taken: " << message;
    } catch (const ScheduleError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  };
  InNodes alone, twice, elsewhere, too_much, wrong, again;
  alone.all_reduces = 0;
  expect(alone, "inside nodes alone");
  twice.all_reduces = 2;
  expect(twice, "across nodes twice");
  elsewhere.gather = ProcessGroup::all;
  expect(elsewhere, "gathers from other ranks than");
  too_much.scatter.group = ProcessGroup::all;
  too_much.gather = ProcessGroup::all;
  expect(too_much, "adds up again what");
  wrong.across.collective = Collective::reduce_scatter;
  expect(wrong, "across nodes");
  again.scatter.collective = Collective::all_reduce;
  expect(again, "inside nodes");
}

TEST(Builder, RefusesAChunkThatNothingWaitsForOrThatWaitsForNothing) {
  Pieces early;  // the second chunk stands on a lane of its own, before any gradient
  early.program();
  const LaneId own = early.builder.lane("second network", LaneKind::network);
  const StepId first = early.reduce(chunk(0, 16));
  const StepId second = early.builder.add(chunk(16, 32), own);
  const StepId updated = early.update(UpdateScope::whole, first);
  early.builder.edge(second, updated);
  early.publish(updated);
  expect_refused(early, ContainsRegex("step 6 .*before step 3 "));
  Pieces late;
  late.program();
  const StepId reduced = late.reduce(chunk(0, 16));
  late.reduce(chunk(16, 32));
  late.publish(late.update(UpdateScope::whole, reduced));
  expect_refused(late, ContainsRegex("step 7 .*before step 6 "));
}

}  // namespace
}  // namespace dear::builder_chunks_test
