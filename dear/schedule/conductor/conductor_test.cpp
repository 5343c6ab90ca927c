#include "dear/schedule/conductor/conductor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/conductor/serial_lane.h"
#include "dear/schedule/policies/builder.h"
#include "dear/schedule/policies/decision.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/layers/testing/workloads.h"

namespace dear::conductor::conductor_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Workload workload_of(int layers) {
  return dear::testing::workload_of(
      {.layers = static_cast<LayerId>(layers), .elements = 16, .forward_seconds = 1, .backward_seconds = 2});
}

// A bucket for each layer, cut into chunks unless their size is 0.
Grouping in_chunks(const Workload& workload, std::int64_t chunk_bytes) {
  std::vector<Bucket> buckets = group(workload, PerLayer{}).buckets();
  for (Bucket& bucket : buckets) bucket.chunk_bytes = chunk_bytes;
  return {workload, std::move(buckets)};
}

// An executor that a test moves by hand: what was started waits in a queue.
class ManualExecutor : public LaneExecutor {
 public:
  Started start(Instance which, const Step& step) override {
    started.push_back(which);
    names.push_back(name_of(step.work));
    return Started::under_way;
  }
  std::deque<Instance> started;
  std::vector<std::string> names;
};

struct HandRun {
  explicit HandRun(const std::string& policy, int layers = 2, Conductor::Options options = {},
                   const cost::CollectiveTimes& times = {}, std::int64_t chunk_bytes = 0)
      : workload(workload_of(layers)),
        grouping(in_chunks(workload, chunk_bytes)),
        schedule(make_schedule(find_policy(policy), workload, grouping, times)),
        conductor(
            schedule, network, update, [this](const Update& work) { inline_updates.push_back(work.bucket); },
            options) {}
  // Ends what the executor started first.
  void end(ManualExecutor& executor) {
    ASSERT_FALSE(executor.started.empty());
    const Instance which = executor.started.front();
    executor.started.pop_front();
    conductor.ended({.span = {which, 0, 1}});
  }
  Workload workload;
  Grouping grouping;
  Schedule schedule;
  ManualExecutor network, update;
  std::vector<BucketId> inline_updates;
  Conductor conductor;
};

TEST(Conductor, DearReducesUnderBackwardAndGathersUnderForward) {
  HandRun run("dear");
  EXPECT_TRUE(run.conductor.idle());
  run.conductor.backward_done(1);
  ASSERT_EQ(run.network.started.size(), 1U);  // while layer 0 still computes
  EXPECT_FALSE(run.conductor.gradients_free(1));
  EXPECT_TRUE(run.conductor.gradients_free(0));
  run.conductor.backward_done(0);
  EXPECT_EQ(run.network.started.size(), 2U);  // handed over behind the first
  run.end(run.network);
  EXPECT_TRUE(run.conductor.gradients_free(1));  // reduced, and not committed: the program may look
  run.end(run.network);
  EXPECT_TRUE(run.update.started.empty());  // no update before the commit
  EXPECT_TRUE(run.conductor.parameters_whole(0));

  run.conductor.commit();
  EXPECT_EQ(run.conductor.iteration(), 1);
  EXPECT_FALSE(run.conductor.parameters_whole(0));
  EXPECT_FALSE(run.conductor.gradients_free(0));
  run.end(run.update);  // bucket 0 first: forward order
  EXPECT_TRUE(run.conductor.gradients_free(0));
  EXPECT_FALSE(run.conductor.parameters_whole(0));
  run.end(run.network);
  EXPECT_TRUE(run.conductor.parameters_whole(0));
  EXPECT_FALSE(run.conductor.parameters_whole(1));
  run.end(run.update);
  run.end(run.network);
  EXPECT_TRUE(run.conductor.parameters_whole(1));
  EXPECT_TRUE(run.conductor.idle());
}

TEST(Conductor, TellsWhichReductionsWaitForTheCommit) {
  HandRun serial("serial"), dear("dear");
  for (HandRun* run : {&serial, &dear}) {
    run->conductor.backward_done(1);
    run->conductor.backward_done(0);
  }
  dear.end(dear.network);
  EXPECT_EQ(dear.conductor.reductions_to_come().size(), 1U);  // at work
  dear.end(dear.network);
  EXPECT_TRUE(dear.conductor.reductions_to_come().empty());
  std::vector<BucketId> buckets;
  for (const StepId step : serial.conductor.reductions_to_come())
    buckets.push_back(std::get<Communicate>(serial.schedule.steps()[step].work).bucket);
  EXPECT_EQ(buckets, (std::vector<BucketId>{1, 0}));
}

// It has two layers, forward 1 and backward 2 each: the gather of bucket 1 goes between the reduce-scatters,
// from 2.1 to 4.
const cost::CollectiveTimes kGatherUnderBackward = {.reduce_scatter = [](std::int64_t) { return 0.1; },
                                                    .all_gather = [](std::int64_t) { return 1.9; }};

TEST(Conductor, DearEagerGathersUnderBackward) {
  HandRun run("dear-eager", 2, {}, kGatherUnderBackward);
  for (int iteration = 0; iteration < 2; ++iteration) {
    EXPECT_TRUE(run.conductor.idle());
    run.conductor.backward_done(1);
    run.end(run.network);
    run.end(run.update);  // while layer 0 still computes
    run.end(run.network);
    // As they are, they are those of no commit.
    EXPECT_FALSE(run.conductor.parameters_whole(1));
    EXPECT_FALSE(run.conductor.gradients_free(1));
    EXPECT_TRUE(run.conductor.parameters_whole(0));
    EXPECT_TRUE(run.conductor.gradients_free(0));
    run.conductor.backward_done(0);
    EXPECT_FALSE(run.conductor.parameters_whole(0));
    run.conductor.commit();
    EXPECT_TRUE(run.conductor.parameters_whole(1));
    EXPECT_TRUE(run.conductor.gradients_free(1));
    EXPECT_FALSE(run.conductor.parameters_whole(0));
    run.end(run.network);
    EXPECT_FALSE(run.conductor.gradients_free(0));
    run.end(run.update);
    EXPECT_TRUE(run.conductor.gradients_free(0));
    EXPECT_FALSE(run.conductor.parameters_whole(0));
    run.end(run.network);
    EXPECT_TRUE(run.conductor.parameters_whole(0));
  }
  EXPECT_TRUE(run.conductor.idle());
  EXPECT_THAT(
      run.network.names,
      ::testing::ElementsAre("reduce-scatter of gradients, bucket 1", "all-gather of parameters, bucket 1",
                             "reduce-scatter of gradients, bucket 0", "all-gather of parameters, bucket 0",
                             "reduce-scatter of gradients, bucket 1", "all-gather of parameters, bucket 1",
                             "reduce-scatter of gradients, bucket 0", "all-gather of parameters, bucket 0"));
}

// They have 64 bytes each, in two chunks. Whichever step ends first: a bucket's gradients are free with the
// last of its updates, its parameters whole with the last of its gathers, and neither before the commit.
TEST(Conductor, ABucketInPiecesIsWholeWithItsLastPiece) {
  std::mt19937 random(5);
  HandRun run("dear-eager", 2, {}, {}, 32);
  for (int iteration = 0; iteration < 20; ++iteration) {
    EXPECT_TRUE(run.conductor.idle());
    run.conductor.backward_done(1);
    run.conductor.backward_done(0);
    std::set<StepId> ended;
    const auto all_of = [&](const std::vector<StepId>& steps) {
      EXPECT_EQ(steps.size(), 2U);
      return std::all_of(steps.begin(), steps.end(), [&](StepId step) { return ended.count(step) > 0; });
    };
    const int commits_after = static_cast<int>(random() % 12);
    bool committed = false;
    for (int steps = 0; steps < 12; ++steps) {
      if (steps == commits_after) run.conductor.commit();
      committed = committed || steps == commits_after;
      ManualExecutor& executor =
          run.network.started.empty() || (!run.update.started.empty() && random() % 2 == 0) ? run.update
                                                                                            : run.network;
      ASSERT_FALSE(executor.started.empty());
      ended.insert(executor.started.front().step);
      run.end(executor);
      for (const BucketId bucket : {0U, 1U}) {
        EXPECT_EQ(run.conductor.gradients_free(bucket), committed && all_of(run.schedule.updates_of(bucket)));
        EXPECT_EQ(run.conductor.parameters_whole(bucket),
                  committed && all_of(run.schedule.publishers_of(bucket)));
      }
    }
  }
  EXPECT_TRUE(run.conductor.idle());
}

// However far the lanes are: the same program meets the same error every time, and none waits for ever.
TEST(Conductor, DearEagerRefusesALookBetweenBackwardAndCommit) {
  for (const int steps_done : {0, 1, 2, 3}) {
    SCOPED_TRACE(steps_done);
    HandRun run("dear-eager", 2, {.rank = 3}, kGatherUnderBackward);
    run.conductor.backward_done(1);
    if (steps_done > 0) run.end(run.network);
    if (steps_done > 1) run.end(run.update);
    if (steps_done > 2) run.end(run.network);
    run.conductor.wait_parameters(0);  // its layer is not through yet
    const auto message = [&](const auto& wait) {
      try {
        wait();
      } catch (const ScheduleError& error) {
        return std::string(error.what());
      }
      return std::string("waited");
    };
    EXPECT_THAT(
        message([&] { run.conductor.wait_parameters(1); }),
        AllOf(HasSubstr("rank 3"), HasSubstr("parameters of bucket 1"), HasSubstr("policy dear-eager")));
    EXPECT_THAT(message([&] { run.conductor.wait_gradients(1); }), HasSubstr("the gradients of bucket 1"));
    EXPECT_THAT(message([&] { run.conductor.synchronize(); }), HasSubstr("bucket 1"));
    EXPECT_EQ(run.conductor.failure(), nullptr);
  }
}

TEST(Conductor, UnderDearEagerAThreadBesideTheProgramWaitsForTheCommit) {
  HandRun run("dear-eager", 2, {}, kGatherUnderBackward);
  run.conductor.backward_done(1);
  std::atomic<std::int64_t> commits_at_return = -1;
  std::thread beside([&] {
    run.conductor.wait_parameters(1, Conductor::Before::wait);
    run.conductor.wait_gradients(1, Conductor::Before::wait);
    commits_at_return = run.conductor.iteration();
  });
  run.end(run.network);
  run.end(run.update);
  run.end(run.network);  // the bucket is up to date, but for the commit
  EXPECT_EQ(commits_at_return, -1);
  run.conductor.backward_done(0);
  EXPECT_EQ(commits_at_return, -1);
  run.conductor.commit();
  beside.join();
  EXPECT_EQ(commits_at_return, 1);
}

TEST(Conductor, DearEagerFlushesAtTheCommit) {
  HandRun run("dear-eager", 2, {}, kGatherUnderBackward);
  run.conductor.backward_done(0);            // 1 was not used
  EXPECT_TRUE(run.network.started.empty());  // the lane keeps its order on every rank
  run.conductor.commit();
  for (const BucketId bucket : {1, 0}) {
    EXPECT_FALSE(run.conductor.parameters_whole(bucket));
    run.end(run.network);
    run.end(run.update);
    run.end(run.network);
    EXPECT_TRUE(run.conductor.parameters_whole(bucket));
    EXPECT_TRUE(run.conductor.gradients_free(bucket));
  }
  EXPECT_TRUE(run.conductor.idle());
  EXPECT_TRUE(run.conductor.all_parameters_whole());
}

TEST(Conductor, CommitFlushesLayersWithoutGradient) {
  HandRun run("dear", 3);
  run.conductor.backward_done(1);            // 2 was not used
  EXPECT_TRUE(run.network.started.empty());  // the lane keeps its order on every rank
  run.conductor.commit();
  EXPECT_EQ(run.network.started.size(), 3U);
  for (int i = 0; i < 3; ++i) run.end(run.network);
  EXPECT_THAT(run.network.names,
              ::testing::ElementsAre(HasSubstr("bucket 2"), HasSubstr("bucket 1"), HasSubstr("bucket 0")));
}

TEST(Conductor, RefusesSchedulesThatCanOnlyBeSimulated) {
  Workload workload = workload_of(2);
  workload.tensors[1].elements = 2 * kMiB;  // two partitions
  workload.buffer_bytes = 8;
  const Grouping grouping = group(workload, PerLayer{});
  const auto refusal = [&](const char* policy) {
    const Schedule schedule = make_schedule(find_policy(policy), workload, grouping);
    ManualExecutor network, update;
    try {
      const Conductor conductor(schedule, network, update, nullptr, {});
    } catch (const ScheduleError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refusal("ddp"), AllOf(HasSubstr("policy ddp"), HasSubstr("\"broadcast of buffers\"")));
  EXPECT_THAT(refusal("fsdp"), HasSubstr("\"all-gather of parameters again, bucket"));
  EXPECT_THAT(refusal("megatron"), HasSubstr("\"all-gather of parameters, bucket 1\""));
  EXPECT_THAT(refusal("hsdp"), HasSubstr("\"all-gather of parameters inside nodes, bucket 0\""));
  EXPECT_EQ(refusal("bytescheduler"), "taken");  // all-reduces of chunks
  for (const Policy& policy : training_policies()) EXPECT_EQ(refusal(policy.name.data()), "taken");
}

// wfbp, but for a network lane for each bucket.
TEST(Conductor, RefusesSeveralNetworkLanes) {
  const Workload workload = workload_of(2);
  const Grouping grouping = group(workload, PerLayer{});
  ScheduleBuilder builder(workload, grouping, "own");
  const LaneId compute = builder.lane("compute", LaneKind::compute);
  const std::array lanes{builder.lane("network 0", LaneKind::network),
                         builder.lane("network 1", LaneKind::network)};
  const std::array forward{builder.add(Forward{0}, compute), builder.add(Forward{1}, compute)};
  const StepId last = builder.add(Backward{1}, compute);
  const std::array backward{builder.add(Backward{0}, compute), last};
  const StepId commit = builder.add(Commit{}, compute);
  for (const BucketId bucket : {1U, 0U}) {
    const StepId reduced = builder.add(
        Communicate{Collective::all_reduce, Payload::gradients, bucket, kWholeBucket, ProcessGroup::all},
        lanes.at(bucket));
    const StepId updated = builder.add(Update{UpdateScope::whole, bucket}, compute);
    builder.edge(backward.at(bucket), reduced).edge(reduced, updated).edge(commit, updated);
    builder.edge(updated, backward.at(bucket), 1).edge(updated, forward.at(bucket), 1);
  }
  const Schedule schedule = std::move(builder).build();
  ManualExecutor network, update;
  EXPECT_THROW(Conductor(schedule, network, update, nullptr, {}), ScheduleError);
}

TEST(Conductor, IssuesTheDecisionFirstAndWaitsForItAfterTheCommit) {
  const Workload workload = workload_of(2);
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule schedule =
      with_decision(make_schedule(find_policy("dear"), workload, grouping), workload, grouping);
  ManualExecutor network, update;
  Conductor conductor(schedule, network, update, [](const Update&) {},
                      {.rank = 1, .timeout = std::chrono::milliseconds(5)});
  conductor.wait_decision();  // nothing is committed yet
  for (std::int64_t iteration = 0; iteration < 2; ++iteration) {
    conductor.backward_done(1);
    EXPECT_EQ(network.names.front(), "broadcast of decision");
    EXPECT_EQ(network.started.size(), 2U);  // the first reduction is behind it
    EXPECT_TRUE(conductor.gradients_free(0));
    conductor.backward_done(0);
    conductor.commit();
    EXPECT_THROW(conductor.wait_decision(), TimeoutError);
    conductor.ended({.span = {network.started.front(), 0, 1}});
    conductor.wait_decision();
    network.started.pop_front();
    for (ManualExecutor* executor : {&network, &network, &update, &update, &network, &network}) {
      conductor.ended({.span = {executor->started.front(), 0, 1}});
      executor->started.pop_front();
    }
    EXPECT_TRUE(conductor.idle());
    network.names.clear();
  }
}

TEST(Conductor, SerialRunsUpdatesInTheCommit) {
  const Workload workload = workload_of(2);
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule schedule = make_schedule(find_policy("serial"), workload, grouping);
  std::vector<std::string> log;
  ManualExecutor nothing;
  Conductor* conductor = nullptr;
  // Ends every collective at once, from a thread of its own.
  struct Prompt : LaneExecutor {
    SerialLane lane;
    std::function<void(Instance)> end;
    Started start(Instance which, const Step&) override {
      lane.post([this, which] { end(which); });
      return Started::under_way;
    }
  } network;
  std::vector<BucketId> updated;
  Conductor conducting(schedule, network, nothing,
                       [&](const Update& work) { updated.push_back(work.bucket); }, {});
  conductor = &conducting;
  network.end = [&](Instance which) { conductor->ended({.span = {which, 0, 0}}); };
  for (int iteration = 0; iteration < 3; ++iteration) {
    conducting.backward_done(1);
    conducting.backward_done(0);
    conducting.commit();
    EXPECT_TRUE(conducting.idle());
  }
  EXPECT_THAT(updated, ::testing::ElementsAre(1, 0, 1, 0, 1, 0));
}

TEST(Conductor, AFailureStopsEverythingAndReachesEveryCall) {
  HandRun run("dear");
  run.conductor.backward_done(1);
  run.conductor.ended({.span = {run.network.started.front(), 0, 0},
                       .error = std::make_exception_ptr(TransportError("rank 1 died"))});
  EXPECT_THROW(run.conductor.backward_done(0), TransportError);
  EXPECT_THROW(run.conductor.commit(), TransportError);
  EXPECT_THROW(run.conductor.synchronize(), TransportError);
  EXPECT_THROW(run.conductor.throw_if_failed(), TransportError);
  EXPECT_EQ(run.network.names.size(), 1U);
  EXPECT_TRUE(run.update.names.empty());
  EXPECT_EQ(run.conductor.iteration(), 0);
}

// It ends as on streams. What it runs may be code of a user, which waits for a thread that asks the
// conductor.
class ExecutorThatEndsAtStart : public LaneExecutor {
 public:
  Started start(Instance /*which*/, const Step& step) override {
    std::thread([this] { EXPECT_FALSE(conductor->failure()); }).join();
    names.push_back(name_of(step.work));
    if (fails) throw ConfigError("an update that fails");
    return Started::done;
  }
  Conductor* conductor = nullptr;
  bool fails = false;
  std::vector<std::string> names;
};

TEST(Conductor, StepsThatEndAtTheirStartRunWithoutALock) {
  const Workload workload = workload_of(2);
  const Grouping grouping = in_chunks(workload, 0);
  const Schedule schedule = make_schedule(find_policy("dear"), workload, grouping, {});
  ExecutorThatEndsAtStart network, update;
  Conductor conductor(schedule, network, update, [](const Update&) {}, {});
  network.conductor = update.conductor = &conductor;
  for (int iteration = 0; iteration < 3; ++iteration) {
    conductor.backward_done(1);
    conductor.backward_done(0);
    conductor.commit();
    EXPECT_TRUE(conductor.idle());
  }
  EXPECT_EQ(network.names.size(), 12U);
  EXPECT_EQ(update.names.size(), 6U);
  conductor.backward_done(1);
  conductor.backward_done(0);
  update.fails = true;
  EXPECT_THROW(conductor.commit(), ConfigError);
  conductor.drain();  // nothing is at work
}

TEST(Conductor, AnEndInAnotherIterationIsAFailure) {
  HandRun run("dear");
  run.conductor.backward_done(1);
  run.conductor.ended({.span = {{.step = run.network.started.front().step, .iteration = 1}, 0, 0}});
  EXPECT_THROW(run.conductor.backward_done(0), ScheduleError);
}

TEST(Conductor, AnExecutorThatRefusesIsAFailure) {
  struct Refusing : LaneExecutor {
    Started start(Instance, const Step&) override { throw TransportError("the group has failed"); }
  } refusing;
  const Workload workload = workload_of(2);
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule schedule = make_schedule(find_policy("dear"), workload, grouping);
  ManualExecutor update;
  Conductor conductor(schedule, refusing, update, {}, {});
  EXPECT_THROW(conductor.backward_done(1), TransportError);
  EXPECT_THROW(conductor.commit(), TransportError);
  conductor.drain();  // nothing is at work
}

TEST(Conductor, AnUpdateInTheCommitThatThrowsIsAFailure) {
  const Workload workload = workload_of(1);
  const Grouping grouping = group(workload, PerLayer{});
  const Schedule schedule = make_schedule(find_policy("serial"), workload, grouping);
  struct AtOnce : LaneExecutor {
    SerialLane lane;
    std::function<void(Instance)> end;
    Started start(Instance which, const Step&) override {
      lane.post([this, which] { end(which); });
      return Started::under_way;
    }
  } network;
  ManualExecutor update;
  Conductor conductor(schedule, network, update, [](const Update&) { throw ConfigError("no such option"); },
                      {});
  network.end = [&](Instance which) { conductor.ended({.span = {which, 0, 0}}); };
  conductor.backward_done(0);
  EXPECT_THROW(conductor.commit(), ConfigError);
  EXPECT_THROW(conductor.backward_done(0), ConfigError);
  EXPECT_THROW(conductor.commit(), ConfigError);
  EXPECT_THROW(conductor.synchronize(), ConfigError);
  conductor.drain();
}

TEST(Conductor, AKeptFailureStopsTheNextStep) {
  HandRun run("dear");
  run.conductor.keep_failure(std::make_exception_ptr(TimeoutError("kept")));
  EXPECT_THROW(run.conductor.commit(), TimeoutError);
  EXPECT_TRUE(run.network.names.empty());
}

TEST(Conductor, AWaitWithoutProgressEndsAndNamesTheStep) {
  HandRun run("dear", 2, {.rank = 3, .timeout = std::chrono::milliseconds(5)});
  run.conductor.commit();
  try {
    run.conductor.wait_parameters(0);
    FAIL() << "waited for nothing";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 3"));
    EXPECT_THAT(error.what(), HasSubstr("all-gather"));
    EXPECT_THAT(error.what(), HasSubstr("bucket 0"));
  }
}

TEST(Conductor, DrainWaitsForWhatIsAtWork) {
  HandRun run("dear");
  run.conductor.backward_done(1);
  const Instance which = run.network.started.front();
  std::thread wire([&] { run.conductor.ended({.span = {which, 0, 0}}); });
  run.conductor.drain();
  wire.join();
  EXPECT_EQ(run.network.names.size(), 1U);
}

// Real threads: whatever the timing, every iteration's steps run once and in an order that the schedule
// allows.
struct Threads {
  std::string name;
  std::string policy;
  std::int64_t chunk_bytes = 0;
};
class ConductorThreads : public ::testing::TestWithParam<Threads> {};

TEST_P(ConductorThreads, RunsManyIterationsWithoutLosingAStep) {
  constexpr int kLayers = 5;
  constexpr int kIterations = 200;
  const Workload workload = workload_of(kLayers);
  const auto& [name, policy, chunk_bytes] = GetParam();
  const Grouping grouping = in_chunks(workload, chunk_bytes);
  const Schedule schedule = make_schedule(find_policy(policy), workload, grouping,
                                          chunk_bytes > 0 ? cost::CollectiveTimes{} : kGatherUnderBackward);
  struct Threaded : LaneExecutor {
    SerialLane lane;
    std::function<void(Instance)> end;
    std::vector<Instance> ran;
    Started start(Instance which, const Step&) override {
      lane.post([this, which] {
        ran.push_back(which);
        end(which);
      });
      return Started::under_way;
    }
  };
  auto network = std::make_unique<Threaded>();
  auto update = std::make_unique<Threaded>();
  int inline_updates = 0;
  Conductor conductor(schedule, *network, *update, [&](const Update&) { ++inline_updates; },
                      {.record = true});
  network->end = update->end = [&](Instance which) { conductor.ended({.span = {which, 0, 0}}); };
  std::mt19937 random(11);
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    for (BucketId bucket = 0; bucket < kLayers; ++bucket) {
      if (random() % 4 != 0) conductor.wait_parameters(bucket);  // else an unused layer
    }
    for (LayerId layer = kLayers; layer-- > 0;) {
      if (random() % 4 != 0) conductor.backward_done(layer);
    }
    const bool synchronizes = random() % 8 == 0, ahead = policy == "dear-eager";
    if (synchronizes && !ahead) conductor.synchronize();
    conductor.commit();
    if (synchronizes && ahead) conductor.synchronize();
  }
  conductor.synchronize();
  EXPECT_TRUE(conductor.idle());
  conductor.drain();
  EXPECT_EQ(conductor.iteration(), kIterations);
  std::size_t executed = 0;
  for (const LaneKind kind : {LaneKind::network, LaneKind::update}) {
    const std::vector<StepId> steps = schedule.steps_on(kind);
    const auto& ran = kind == LaneKind::network ? network->ran : update->ran;
    executed += steps.size();
    ASSERT_EQ(ran.size(), steps.size() * kIterations);
    for (std::size_t i = 0; i < ran.size(); ++i) EXPECT_EQ(ran[i].step, steps[i % steps.size()]);
  }
  EXPECT_EQ(conductor.record().steps.size(), executed * kIterations + inline_updates);
  network.reset();
  update.reset();
}

INSTANTIATE_TEST_SUITE_P(Policies, ConductorThreads,
                         ::testing::Values(Threads{"serial", "serial"}, Threads{"wfbp", "wfbp"},
                                           Threads{"replicated", "dear-replicated"}, Threads{"dear", "dear"},
                                           Threads{"eager", "dear-eager"},
                                           Threads{"chunks", "dear-eager", 16}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dear::conductor::conductor_test
