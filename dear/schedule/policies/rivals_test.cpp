#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/schedule/graph/precedence.h"
#include "dear/schedule/policies/collective.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::rivals_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Random;

// Layers of one tensor each, given by its bytes, and of a second each way.
Workload layers_of(const std::vector<std::int64_t>& bytes) {
  Workload workload{.name = "layers", .tensors = {}, .layers = {}};
  for (const std::int64_t size : bytes) {
    const auto id = static_cast<TensorId>(workload.tensors.size());
    workload.tensors.push_back({.name = fmt::format("t{}", id), .elements = size / 4});
    workload.layers.push_back(
        {.name = fmt::format("l{}", id), .tensors = {id}, .forward_seconds = 1, .backward_seconds = 1});
  }
  return workload;
}

// An all-reduce takes start_up and so long a byte; of two ranks.
cost::CollectiveTimes times_of(double start_up, double seconds_per_byte) {
  const auto part = [=](double share) {
    return [=](std::int64_t bytes) {
      return share * (start_up + seconds_per_byte * static_cast<double>(bytes));
    };
  };
  return {.ranks = 2,
          .reduce_scatter = part(0.5),
          .all_gather = part(0.5),
          .all_reduce = part(1),
          .broadcast = part(0.5)};
}

std::vector<std::string> lane(const Schedule& schedule, LaneKind kind) {
  std::vector<std::string> names;
  for (const StepId step : schedule.steps_on(kind)) names.push_back(name_of(schedule.steps()[step].work));
  return names;
}

Schedule make(std::string_view policy, const Workload& workload, const cost::CollectiveTimes& times = {}) {
  return make_schedule(find_policy(policy), workload, group(workload, PerLayer{}), times);
}

Grouping usual(std::string_view policy, const Workload& workload, const cost::CollectiveTimes& times) {
  return find_policy(policy).usual_grouping(workload, times);
}

// Tensors of each bucket.
std::vector<std::vector<TensorId>> tensors_of(const Grouping& grouping) {
  std::vector<std::vector<TensorId>> tensors;
  for (const Bucket& bucket : grouping.buckets()) tensors.push_back(bucket.tensors);
  return tensors;
}
using Tensors = std::vector<TensorId>;

TEST(Rivals, MergedGradientsAndHorovodRunAsWfbp) {
  const Workload workload = layers_of({16, 16, 16});
  const Schedule wfbp = make("wfbp", workload);
  for (const std::string_view policy : {"mg-wfbp", "horovod", "ddp"}) {
    const Schedule schedule = make(policy, workload);
    for (const LaneKind kind : {LaneKind::compute, LaneKind::network, LaneKind::update})
      EXPECT_EQ(lane(schedule, kind), lane(wfbp, kind));
    EXPECT_EQ(schedule.edges(), wfbp.edges());
  }
}

TEST(Rivals, DdpBroadcastsBuffersBeforeTheForward) {
  Workload workload = layers_of({16, 16});
  EXPECT_THAT(lane(make("ddp", workload), LaneKind::network),
              Not(::testing::Contains("broadcast of buffers")));
  workload.buffer_bytes = 8;
  const Schedule schedule = make("ddp", workload);
  EXPECT_THAT(lane(schedule, LaneKind::network),
              ElementsAre("broadcast of buffers", "all-reduce of gradients, bucket 1",
                          "all-reduce of gradients, bucket 0"));
}

TEST(Rivals, DdpOnOneRankPaysForNoBuffers) {
  Workload workload = layers_of({16, 16});
  workload.buffer_bytes = 8;
  workload.buffers = 3;
  cost::CollectiveTimes times = times_of(3, 2);
  times.buffer_seconds = 100;
  EXPECT_DOUBLE_EQ(seconds_of_buffers(workload, times), 3 * 100 + 0.5 * (3 + 2 * 8));
  times.ranks = 1;
  EXPECT_EQ(seconds_of_buffers(workload, times), 0);
}

TEST(Rivals, PartitionsOnTheirWayTogetherShareAStartUp) {
  EXPECT_TRUE(find_policy("bytescheduler").joins_chunks);
  const cost::CollectiveTimes times = times_of(3, 2);
  EXPECT_DOUBLE_EQ(seconds_of_joint(Collective::all_reduce, 0, 4, times),
                   seconds_of(Collective::all_reduce, 4, times));
  EXPECT_DOUBLE_EQ(
      seconds_of_joint(Collective::all_reduce, 4, 12, times),
      seconds_of(Collective::all_reduce, 12, times) - seconds_of(Collective::all_reduce, 4, times));
}

// Partitions of 4 MB take a second each, of which four may be on their way. At 1 s bucket 2 is ready and
// takes all credit. A partition is through at 2, 3, 4, ... s: bucket 1, ready at 2 s, sends one; bucket 0,
// ready at 3 s, goes before the rest of it.
TEST(Rivals, ByteSchedulerLanes) {
  const Workload workload = layers_of({16'000'000, 16'000'000, 16'000'000});
  const Schedule schedule = make("bytescheduler", workload, times_of(0, 1 / 4e6));
  const auto chunk = [](int bucket, int k) {
    return fmt::format("all-reduce of gradients, bucket {}, bytes {} to {}", bucket, k * 4'000'000,
                       (k + 1) * 4'000'000);
  };
  EXPECT_THAT(lane(schedule, LaneKind::network),
              ElementsAre(chunk(2, 0), chunk(2, 1), chunk(2, 2), chunk(2, 3), chunk(1, 0), chunk(0, 0),
                          chunk(0, 1), chunk(0, 2), chunk(0, 3), chunk(1, 1), chunk(1, 2), chunk(1, 3)));
  EXPECT_THAT(
      lane(schedule, LaneKind::update),
      ElementsAre("update of whole, bucket 0", "update of whole, bucket 1", "update of whole, bucket 2"));
  // On a network without a queue everything goes when it is ready.
  EXPECT_THAT(lane(make("bytescheduler", layers_of({16, 16})), LaneKind::network),
              ElementsAre("all-reduce of gradients, bucket 1", "all-reduce of gradients, bucket 0"));
}

// An all-reduce of 16 MiB takes 4 s. Bucket 2 is ready at 1 s, and the backward ends at 3 s: half of it fits.
// Then forward order, whole. At twice the speed all of it fits.
TEST(Rivals, UsByteLanes) {
  const Workload workload = layers_of({16 * kMiB, 16 * kMiB, 16 * kMiB});
  const double seconds_per_byte = 4.0 / (16 * kMiB);
  EXPECT_THAT(lane(make("us-byte", workload, times_of(0, seconds_per_byte)), LaneKind::network),
              ElementsAre("all-reduce of gradients, bucket 2, bytes 0 to 8388608",
                          "all-reduce of gradients, bucket 0", "all-reduce of gradients, bucket 1",
                          "all-reduce of gradients, bucket 2, bytes 8388608 to 16777216"));
  EXPECT_THAT(lane(make("us-byte", workload, times_of(0, seconds_per_byte / 2)), LaneKind::network),
              ElementsAre("all-reduce of gradients, bucket 2", "all-reduce of gradients, bucket 0",
                          "all-reduce of gradients, bucket 1"));
  // A cut is not worth a start-up of most of the time that is left.
  EXPECT_THAT(lane(make("us-byte", workload, times_of(1.5, seconds_per_byte)), LaneKind::network),
              ElementsAre("all-reduce of gradients, bucket 0", "all-reduce of gradients, bucket 1",
                          "all-reduce of gradients, bucket 2"));
}

TEST(Rivals, Zero1Lanes) {
  const Schedule schedule = make("zero-1", layers_of({16, 16}));
  EXPECT_THAT(lane(schedule, LaneKind::compute),
              ElementsAre("forward 0", "forward 1", "backward 1", "backward 0", "commit",
                          "update of shard, bucket 1", "update of shard, bucket 0"));
  EXPECT_THAT(lane(schedule, LaneKind::network),
              ElementsAre("reduce-scatter of gradients, bucket 1", "reduce-scatter of gradients, bucket 0",
                          "all-gather of parameters, bucket 0", "all-gather of parameters, bucket 1"));
  const graph::Precedence precedence(schedule.steps().size(), edges_with_lanes(schedule));
  EXPECT_EQ(precedence.crossings_from(schedule.publishers_of(1).front())[schedule.forward_of(0)], 1);
}

TEST(Rivals, MegatronLanes) {
  const Schedule schedule = make("megatron", layers_of({16, 16, 16}));
  EXPECT_THAT(
      lane(schedule, LaneKind::compute),
      ElementsAre("forward 0", "forward 1", "forward 2", "backward 2", "backward 1", "backward 0", "commit",
                  "update of shard, bucket 2", "update of shard, bucket 1", "update of shard, bucket 0"));
  EXPECT_THAT(lane(schedule, LaneKind::network),
              ElementsAre("all-gather of parameters, bucket 0", "all-gather of parameters, bucket 1",
                          "all-gather of parameters, bucket 2", "reduce-scatter of gradients, bucket 2",
                          "reduce-scatter of gradients, bucket 1", "reduce-scatter of gradients, bucket 0"));
  // One bucket ahead: the gather of bucket 2 is issued when the forward reaches bucket 1.
  const graph::Precedence precedence(schedule.steps().size(), schedule.edges());
  EXPECT_EQ(precedence.crossings_from(schedule.forward_of(0))[schedule.publishers_of(2).front()], 0);
  EXPECT_NE(precedence.crossings_from(schedule.forward_of(1))[schedule.publishers_of(2).front()], 0);
  EXPECT_NE(precedence.crossings_from(schedule.forward_of(0))[schedule.publishers_of(1).front()], 0);
}

TEST(Rivals, FsdpLanes) {
  const Schedule schedule = make("fsdp", layers_of({16, 16, 16, 16}));
  EXPECT_THAT(
      lane(schedule, LaneKind::network),
      ElementsAre("all-gather of parameters, bucket 0", "all-gather of parameters, bucket 1",
                  "all-gather of parameters, bucket 2", "all-gather of parameters, bucket 3",
                  "all-gather of parameters again, bucket 3", "all-gather of parameters again, bucket 2",
                  "all-gather of parameters again, bucket 1", "reduce-scatter of gradients, bucket 3",
                  "all-gather of parameters again, bucket 0", "reduce-scatter of gradients, bucket 2",
                  "reduce-scatter of gradients, bucket 1", "reduce-scatter of gradients, bucket 0"));
}

// The first in the order of backward is full with 1 MiB, the next with 25.
TEST(UsualGrouping, OfDdp) {
  const Workload workload =
      layers_of({1 * kMiB, 10 * kMiB, 10 * kMiB, 10 * kMiB, 20 * kMiB, kMiB / 2, kMiB / 2});
  EXPECT_THAT(tensors_of(usual("ddp", workload, {})),
              ElementsAre(Tensors{0, 1, 2}, Tensors{3, 4}, Tensors{5, 6}));
}

// Megatron's hold 40 million elements, or a million for each rank.
TEST(UsualGrouping, OfMegatron) {
  const std::int64_t bytes = 4 * 20'000'000;
  const Workload workload = layers_of({bytes, bytes, bytes, bytes, bytes});
  EXPECT_THAT(tensors_of(usual("megatron", workload, {.ranks = 8})),
              ElementsAre(Tensors{0}, Tensors{1, 2}, Tensors{3, 4}));
  EXPECT_THAT(tensors_of(usual("megatron", workload, {.ranks = 60})),
              ElementsAre(Tensors{0, 1}, Tensors{2, 3, 4}));
}

// Gradients are ready at 1, 2 and 3 s. A start-up of 1.5 s is saved by waiting 1 s, one of 0.5 s is not; a
// busy network makes waiting free.
TEST(UsualGrouping, OfMgWfbp) {
  const Workload workload = layers_of({4, 4, 4});
  EXPECT_EQ(usual("mg-wfbp", workload, times_of(1.5, 0)).size(), 1U);
  EXPECT_EQ(usual("mg-wfbp", workload, times_of(0.5, 0)).size(), 3U);
  EXPECT_EQ(usual("mg-wfbp", workload, times_of(0, 1)).size(), 3U);
  // Bucket 2 alone from 1 to 5.5 s; 1 and 0, ready at 2 and 3 s, have to wait for that, and do it together.
  EXPECT_THAT(tensors_of(usual("mg-wfbp", workload, times_of(0.5, 1))),
              ElementsAre(Tensors{0, 1}, Tensors{2}));
  EXPECT_EQ(usual("mg-wfbp", workload, {}).size(), 3U);
}

// Merging is never worse than neither merging nor fusing.
TEST(UsualGrouping, OfMgWfbpEndsNoLaterThanOneBucketALayer) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Workload workload = testing::random_workload(random, 12);
    const cost::CollectiveTimes times = times_of(random.unit() * 2e-3, random.unit() * 1e-8);
    const auto ends = [&](const Grouping& grouping) {
      double network = 0;
      for (BucketId bucket = static_cast<BucketId>(grouping.size()); bucket-- > 0;) {
        double ready = 0;
        for (LayerId layer = static_cast<LayerId>(workload.layers.size()); layer-- > 0;) {
          ready += workload.layers[layer].backward_seconds;
          if (owner_of(workload)[grouping.buckets()[bucket].tensors.front()] == layer) break;
        }
        network = std::max(network, ready) + times.all_reduce(grouping.buckets()[bucket].bytes);
      }
      return network;
    };
    for (Tensor& tensor : workload.tensors) tensor.dtype = DType::f32;
    EXPECT_LE(ends(usual("mg-wfbp", workload, times)), ends(group(workload, PerLayer{})) * (1 + 1e-6));
  }
}

// Tensors ready by the same multiple of a millisecond travel together, and no more than 64 MiB.
TEST(UsualGrouping, OfHorovod) {
  Workload workload = layers_of({4, 4, 4, 4, 4});
  for (Layer& layer : workload.layers)
    layer.backward_seconds = 0.4e-3;  // ready at 2.0, 1.6, 1.2, 0.8, 0.4 ms
  EXPECT_THAT(tensors_of(usual("horovod", workload, {})), ElementsAre(Tensors{0, 1, 2}, Tensors{3, 4}));
  for (Tensor& tensor : workload.tensors) tensor.elements = 8 * kMiB;  // 32 MiB
  EXPECT_THAT(tensors_of(usual("horovod", workload, {})),
              ElementsAre(Tensors{0}, Tensors{1, 2}, Tensors{3, 4}));
  // A negotiation of 2 * 3 messages of 0.5 ms is longer than a cycle.
  for (Tensor& tensor : workload.tensors) tensor.elements = 1;
  EXPECT_EQ(usual("horovod", workload, {.ranks = 8, .message_seconds = 0.5e-3}).size(), 1U);
  EXPECT_DOUBLE_EQ(find_policy("horovod").overhead_seconds({.ranks = 8, .message_seconds = 0.5e-3}), 3e-3);
  EXPECT_EQ(find_policy("horovod").overhead_seconds({.ranks = 1}), 0);
  // A launch of 2 ms contains as much of it.
  EXPECT_DOUBLE_EQ(find_policy("horovod").overhead_seconds(
                       {.ranks = 8, .launch_seconds = 2e-3, .message_seconds = 0.5e-3}),
                   1e-3);
}

// Tied tensors, layers without any, several dtypes: each rule is a partition, and each policy has a schedule
// for any of them.
TEST(UsualGrouping, OfAnyJobMakesASchedule) {
  for (std::uint64_t seed = 0; seed < testing::rounds(100U); ++seed) {
    Random random(seed);
    Workload workload = testing::random_workload(random, 10);
    workload.buffer_bytes = static_cast<std::int64_t>(random.below(2));
    for (Tensor& tensor : workload.tensors)
      tensor.elements *= 1 + static_cast<std::int64_t>(random.below(100));
    const cost::CollectiveTimes times = times_of(random.unit() * 1e-3, random.unit() * 1e-9);
    for (const Policy& policy : policies()) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", policy " << policy.name);
      for (const Policy& other : policies()) {
        const Grouping grouping = other.usual_grouping(workload, times);
        EXPECT_EQ(make_schedule(policy, workload, grouping, times).bucket_count(), grouping.size());
      }
    }
  }
}

TEST(Rivals, BoundsInClosedForm) {
  const auto bound = [](std::string_view name, double f, double b, double r) {
    return find_policy(name).bound(f, b, r);
  };
  for (const std::string_view name : {"mg-wfbp", "horovod", "ddp"}) EXPECT_EQ(bound(name, 1, 2, 3), 4);
  for (const std::string_view name : {"bytescheduler", "us-byte"}) {
    EXPECT_EQ(bound(name, 1, 2, 2.5), 3);
    EXPECT_EQ(bound(name, 1, 2, 4), 4);
  }
  EXPECT_EQ(bound("zero-1", 1, 2, 3), 4.5);
  EXPECT_EQ(bound("zero-1", 1, 2, 6), 7);
  EXPECT_EQ(bound("megatron", 1, 2, 3), 3.5);
  EXPECT_EQ(bound("fsdp", 1, 2, 3), 4.5);
  EXPECT_EQ(bound("fsdp", 1, 2, 1), 3);
  for (const Policy& policy : policies())
    for (const double r : {0.0, 0.5, 2.0, 3.0, 9.0})
      EXPECT_GE(policy.bound(1, 2, r), stale_gradient_floor(1, 2, r * policy.traffic)) << policy.name;
}

}  // namespace
}  // namespace dear::rivals_test
