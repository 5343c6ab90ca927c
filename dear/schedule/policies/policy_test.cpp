#include "dear/schedule/policies/policy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/fusion/chunks.h"
#include "dear/schedule/graph/precedence.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::policy_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Random;

Workload three_layers() {
  return {
      .name = "three layers",
      .tensors = {{.name = "a", .elements = 4}, {.name = "b", .elements = 4}, {.name = "c", .elements = 4}},
      .layers = {{.name = "first", .tensors = {0}},
                 {.name = "second", .tensors = {1}},
                 {.name = "third", .tensors = {2}}}};
}

std::vector<std::string> steps_on(const Schedule& schedule, LaneKind kind) {
  std::vector<std::string> names;
  for (const StepId step : schedule.steps_on(kind)) names.push_back(name_of(schedule.steps()[step].work));
  return names;
}

TEST(Policy, SerialLanes) {
  const Workload workload = three_layers();
  const Schedule schedule = make_serial(workload, group(workload, PerLayer{}));
  EXPECT_THAT(
      steps_on(schedule, LaneKind::compute),
      ElementsAre("forward 0", "forward 1", "forward 2", "backward 2", "backward 1", "backward 0", "commit",
                  "update of whole, bucket 2", "update of whole, bucket 1", "update of whole, bucket 0"));
  EXPECT_THAT(steps_on(schedule, LaneKind::network),
              ElementsAre("all-reduce of gradients, bucket 2", "all-reduce of gradients, bucket 1",
                          "all-reduce of gradients, bucket 0"));
  EXPECT_TRUE(steps_on(schedule, LaneKind::update).empty());
}

TEST(Policy, WfbpDiffersFromSerialByTheCommitAlone) {
  const Workload workload = three_layers();
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule serial = make_serial(workload, grouping), wfbp = make_wfbp(workload, grouping);
  for (const LaneKind kind : {LaneKind::compute, LaneKind::network, LaneKind::update})
    EXPECT_EQ(steps_on(serial, kind), steps_on(wfbp, kind));
  EXPECT_EQ(serial.edges().size(), wfbp.edges().size() + 3);
}

TEST(Policy, DearReplicatedLanes) {
  const Workload workload = three_layers();
  const Schedule schedule = make_dear_replicated(workload, group(workload, PerLayer{}));
  EXPECT_THAT(
      steps_on(schedule, LaneKind::compute),
      ElementsAre("forward 0", "forward 1", "forward 2", "backward 2", "backward 1", "backward 0", "commit"));
  EXPECT_THAT(steps_on(schedule, LaneKind::network),
              ElementsAre("reduce-scatter of gradients, bucket 2", "reduce-scatter of gradients, bucket 1",
                          "reduce-scatter of gradients, bucket 0", "all-gather of gradients, bucket 0",
                          "all-gather of gradients, bucket 1", "all-gather of gradients, bucket 2"));
  EXPECT_THAT(
      steps_on(schedule, LaneKind::update),
      ElementsAre("update of whole, bucket 0", "update of whole, bucket 1", "update of whole, bucket 2"));
  EXPECT_EQ(schedule.publishers_of(1).front(), schedule.update_of(1));
  // Gathered gradients must not change what a program reads between backward and step().
  const graph::Precedence precedence(schedule.steps().size(), edges_with_lanes(schedule, {.compute = true}));
  const std::vector<std::uint8_t> after_commit = precedence.crossings_from(schedule.commit());
  for (StepId step = 0; step < schedule.steps().size(); ++step) {
    const auto* work = std::get_if<Communicate>(&schedule.steps()[step].work);
    if (work != nullptr && work->collective == Collective::all_gather) {
      EXPECT_EQ(after_commit[step], 0);
    }
  }
}

TEST(Policy, DearLanes) {
  const Workload workload = three_layers();
  const Schedule schedule = make_dear(workload, group(workload, PerLayer{}));
  EXPECT_THAT(steps_on(schedule, LaneKind::network),
              ElementsAre("reduce-scatter of gradients, bucket 2", "reduce-scatter of gradients, bucket 1",
                          "reduce-scatter of gradients, bucket 0", "all-gather of parameters, bucket 0",
                          "all-gather of parameters, bucket 1", "all-gather of parameters, bucket 2"));
  EXPECT_THAT(
      steps_on(schedule, LaneKind::update),
      ElementsAre("update of shard, bucket 0", "update of shard, bucket 1", "update of shard, bucket 2"));
  EXPECT_EQ(name_of(schedule.steps()[schedule.publishers_of(1).front()].work),
            "all-gather of parameters, bucket 1");
}

// Without a profile dear-eager has the order of dear, and no update waits for the commit.
TEST(Policy, DearEagerWithoutAProfile) {
  const Workload workload = three_layers();
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule eager = make_dear_eager(workload, grouping), dear = make_dear(workload, grouping);
  for (const LaneKind kind : {LaneKind::compute, LaneKind::network, LaneKind::update})
    EXPECT_EQ(steps_on(eager, kind), steps_on(dear, kind));
  for (const Edge& edge : eager.edges()) EXPECT_FALSE(edge.from == eager.commit() && edge.back == 0);
}

cost::CollectiveTimes halves_of(double scatter, double gather) {
  return {.ranks = 2,
          .reduce_scatter = [=](std::int64_t bytes) { return scatter * static_cast<double>(bytes); },
          .all_gather = [=](std::int64_t bytes) { return gather * static_cast<double>(bytes); }};
}

// Backwards of 2 s and no forwards; of each layer the reduce-scatter takes 0.1 s and the all-gather 1.6 s. So
// the gathers of 2 and 1 fill the backwards of 1 and 0.
TEST(Policy, DearEagerGathersUnderTheBackward) {
  Workload workload = three_layers();
  for (Layer& layer : workload.layers) layer.backward_seconds = 2;
  const Schedule schedule =
      make_dear_eager(workload, group(workload, PerLayer{}), halves_of(0.1 / 16, 1.6 / 16));
  EXPECT_THAT(steps_on(schedule, LaneKind::network),
              ElementsAre("reduce-scatter of gradients, bucket 2", "all-gather of parameters, bucket 2",
                          "reduce-scatter of gradients, bucket 1", "all-gather of parameters, bucket 1",
                          "reduce-scatter of gradients, bucket 0", "all-gather of parameters, bucket 0"));
  // A gather has an edge of its own from every backward that reads what it writes.
  const StepId gather = schedule.publishers_of(2).front(), backward = schedule.backward_of(2);
  EXPECT_THAT(schedule.edges(), ::testing::Contains(Edge{backward, gather, 0}));
}

// The first layer's tensor is used again by the last: its gradient is complete when the first layer's
// backward has ended, and the first forward needs it. So its reduce-scatter is the last and its gather waits
// for nothing else.
TEST(Policy, DearEagerKnowsTiedTensors) {
  Workload workload = three_layers();
  workload.layers[2].tensors = {0, 2};
  for (Layer& layer : workload.layers) layer.backward_seconds = 2;
  const Grouping grouping = group(workload, PerLayer{});
  const cost::CollectiveTimes times = halves_of(0.1 / 16, 1.6 / 16);
  const std::vector<fusion::TimedChunk> chunks = fusion::chunks_of(workload, grouping, times);
  EXPECT_EQ(chunks[0].ready, 6);
  EXPECT_EQ(chunks[2].ready, 2);
  const Schedule schedule = make_dear_eager(workload, grouping, times);
  EXPECT_EQ(steps_on(schedule, LaneKind::network)[4], "reduce-scatter of gradients, bucket 0");
  const StepId gather = schedule.publishers_of(0).front();
  for (const LayerId layer : {0U, 2U}) {
    EXPECT_THAT(schedule.edges(), ::testing::Contains(Edge{schedule.backward_of(layer), gather, 0}));
    EXPECT_THAT(schedule.edges(), ::testing::Contains(Edge{gather, schedule.forward_of(layer), 1}));
  }
}

// Bucket 2 is in the way of bucket 0 unless it is cut, which costs nothing here.
TEST(Policy, DearEagerCutsWhereThatHelps) {
  Workload workload = three_layers();
  workload.tensors[2].elements = 1000;
  for (Layer& layer : workload.layers) layer.backward_seconds = 2;
  workload.layers[0].forward_seconds = 50;
  std::vector<Bucket> buckets = group(workload, PerLayer{}).buckets();
  buckets[2].chunk_bytes = 1024;
  const Grouping grouping(workload, std::move(buckets));
  const Schedule cut = make_dear_eager(workload, grouping, halves_of(0.01, 0.01));
  EXPECT_EQ(cut.publishers_of(2).size(), 4U);
  EXPECT_EQ(cut.publishers_of(1).size(), 1U);
  // With a start-up of ten seconds it is left whole.
  const auto slow = [](std::int64_t bytes) { return 10 + 0.01 * static_cast<double>(bytes); };
  const Schedule whole = make_dear_eager(workload, grouping, {.reduce_scatter = slow, .all_gather = slow});
  EXPECT_EQ(whole.publishers_of(2).size(), 1U);
}

// The live program keeps its own order on the compute lane, so what data depends on must not rest on that
// order.
TEST(Policy, DataDependenciesHoldWithoutTheComputeLanesOrder) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Workload workload = testing::random_workload(random, 8);
    const Grouping grouping = testing::random_grouping(random, workload);
    for (const Policy& policy : policies()) {
      SCOPED_TRACE(policy.name);
      const Schedule schedule = make_schedule(policy, workload, grouping);
      const graph::Precedence precedence(schedule.steps().size(),
                                         edges_with_lanes(schedule, {.compute = true}));
      const std::vector<std::uint8_t> after_commit = precedence.crossings_from(schedule.commit());
      for (LayerId layer = 0; layer < workload.layers.size(); ++layer)
        for (const TensorId tensor : workload.layers[layer].tensors) {
          const BucketId bucket = grouping.bucket_of(tensor);
          const StepId update = schedule.update_of(bucket),
                       publisher = schedule.publishers_of(bucket).front();
          const std::vector<std::uint8_t> after_backward =
              precedence.crossings_from(schedule.backward_of(layer));
          for (StepId step = 0; step < schedule.steps().size(); ++step) {
            const auto* work = std::get_if<Communicate>(&schedule.steps()[step].work);
            if (work == nullptr || work->bucket != bucket) continue;
            if (work->payload == Payload::gradients) {
              ASSERT_EQ(after_backward[step], 0);
              ASSERT_EQ(precedence.crossings_from(step)[update], 0);
            }
            if (work->payload == Payload::parameters_again) {
              ASSERT_EQ(precedence.crossings_from(schedule.forward_of(layer))[step], 0);
              ASSERT_EQ(precedence.crossings_from(step)[schedule.backward_of(layer)], 0);
            }
          }
          const auto& options = std::get<Update>(schedule.steps()[update].work).options;
          ASSERT_EQ(after_commit[update], options == OptionsOf::this_commit ? 0 : 1);
          // Gathered at the end of the iteration, or at the beginning of the next.
          ASSERT_EQ(precedence.crossings_from(update)[publisher] +
                        precedence.crossings_from(publisher)[schedule.forward_of(layer)],
                    1);
          ASSERT_EQ(precedence.crossings_from(update)[schedule.backward_of(layer)], 1);
        }
    }
  }
}

TEST(Policy, OnlyLayersThatUseABucketWaitForIt) {
  const Workload workload = three_layers();
  const Schedule schedule = make_dear(workload, group(workload, PerLayer{}));
  // Forward 0 of an iteration may run before the all-gather of bucket 1 of the one before: no path of one
  // crossing.
  const graph::Precedence precedence(schedule.steps().size(), edges_with_lanes(schedule));
  EXPECT_GT(precedence.crossings_from(schedule.publishers_of(1).front())[schedule.forward_of(0)], 1);
  EXPECT_EQ(precedence.crossings_from(schedule.publishers_of(1).front())[schedule.forward_of(1)], 1);
}

TEST(Policy, HundredsOfLayersInBucketsOfTheirOwn) {
  Workload workload{.name = "deep", .tensors = {}, .layers = {}};
  for (LayerId layer = 0; layer < 400; ++layer) {
    Layer next{.name = fmt::format("layer{}", layer), .tensors = {}};
    for (int t = 0; t < (layer % 2 == 0 ? 1 : 2); ++t) {
      next.tensors.push_back(static_cast<TensorId>(workload.tensors.size()));
      workload.tensors.push_back({.name = fmt::format("t{}", workload.tensors.size()), .elements = 10});
    }
    workload.layers.push_back(std::move(next));
  }
  ASSERT_EQ(workload.tensors.size(), 600U);
  const Grouping grouping = group(workload, PerLayer{});
  for (const Policy& policy : policies())
    EXPECT_EQ(make_schedule(policy, workload, grouping).bucket_count(), 400U);
}

TEST(Policy, AWorkloadWithoutTensorsCommunicatesNothing) {
  const Workload workload{.name = "bare", .tensors = {}, .layers = {{.name = "only", .tensors = {}}}};
  const Grouping grouping(workload, {});
  for (const Policy& policy : policies()) {
    const Schedule schedule = make_schedule(policy, workload, grouping);
    EXPECT_EQ(schedule.bucket_count(), 0U);
    EXPECT_TRUE(steps_on(schedule, LaneKind::network).empty());
  }
}

TEST(Policy, DigestsTellApartWhateverRanksMustAgreeOn) {
  const Workload workload = three_layers();
  const Grouping grouping = group(workload, PerLayer{});
  const std::uint64_t digest = make_dear(workload, grouping).digest();
  EXPECT_EQ(make_dear(three_layers(), group(three_layers(), PerLayer{})).digest(), digest);

  Workload slower = workload;  // ranks never measure the same times
  slower.layers[0].forward_seconds = 1;
  EXPECT_EQ(make_dear(slower, grouping).digest(), digest);

  EXPECT_NE(make_dear_replicated(workload, grouping).digest(), digest);
  EXPECT_NE(make_dear(workload, group(workload, AllInOne{})).digest(), digest);
  Workload renamed = workload;
  renamed.tensors[1].name = "bb";
  EXPECT_NE(make_dear(renamed, grouping).digest(), digest);
  Workload larger = workload;
  larger.tensors[1].elements = 5;
  EXPECT_NE(make_dear(larger, grouping).digest(), digest);
  Workload typed = workload;
  typed.tensors[1].dtype = DType::i32;
  EXPECT_NE(make_dear(typed, grouping).digest(), digest);
  Workload tied = workload;
  tied.layers[2].tensors = {0, 2};
  EXPECT_NE(make_dear(tied, grouping).digest(), digest);
  ScheduleBuilder draft = testing::draft_of(make_dear(workload, grouping), workload, grouping);
  EXPECT_EQ(testing::draft_of(make_dear(workload, grouping), workload, grouping).build().digest(), digest);
  EXPECT_NE(std::move(draft.edge(0, 0, 2)).build().digest(), digest);
}

TEST(Policy, BoundsInClosedForm) {
  const auto bound = [](std::string_view name, double f, double b, double r) {
    return find_policy(name).bound(f, b, r);
  };
  EXPECT_EQ(bound("serial", 1, 2, 3), 6);
  EXPECT_EQ(bound("wfbp", 1, 2, 3), 4);
  EXPECT_EQ(bound("wfbp", 1, 2, 1.5), 3);
  for (const std::string_view name : {"dear", "dear-replicated"}) {
    EXPECT_EQ(bound(name, 1, 2, 3), 3.5);
    EXPECT_EQ(bound(name, 1, 2, 6), 6);
    EXPECT_EQ(bound(name, 1, 2, 1), 3);
  }
}

TEST(Policy, TableFindsPoliciesByName) {
  for (const Policy& policy : policies()) {
    EXPECT_EQ(&find_policy(policy.name), &policy);
    EXPECT_FALSE(policy.summary.empty());
    EXPECT_FALSE(policy.source.empty());
    const Workload workload = three_layers();
    EXPECT_EQ(make_schedule(policy, workload, group(workload, AllInOne{})).policy(), policy.name);
  }
  const auto message = [](const auto& find, std::string_view name) {
    try {
      (void)find(name);
      return std::string("found");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(message(find_policy, "hope"), AllOf(HasSubstr("\"hope\""), HasSubstr("fsdp")));
  EXPECT_EQ(&find_training_policy("dear"), &find_policy("dear"));
  EXPECT_THAT(message(find_training_policy, "hope"), AllOf(HasSubstr("\"hope\""), Not(HasSubstr("fsdp"))));
  EXPECT_THAT(message(find_training_policy, "fsdp"), AllOf(HasSubstr("\"fsdp\""), HasSubstr("dear-eager")));

  EXPECT_THAT(automatic_candidates("dear"), IsEmpty());
  EXPECT_THAT(automatic_candidates("auto"), ElementsAre("dear", "wfbp"));
  EXPECT_THAT(automatic_candidates("auto=wfbp,dear-eager,dear"), ElementsAre("wfbp", "dear-eager", "dear"));
  for (const std::string_view one : {"auto=", "auto=dear", "automatic", "auto,dear,wfbp", "auto=dear,wfbp,"})
    EXPECT_NE(message(automatic_candidates, one), "found") << one;
  EXPECT_THAT(message(automatic_candidates, "auto=dear,dear"), HasSubstr("twice"));
  EXPECT_THAT(message(automatic_candidates, "auto=dear,ddp"), HasSubstr("only be simulated"));
}

}  // namespace
}  // namespace dear::policy_test
