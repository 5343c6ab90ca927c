#include "dear/tools/replay/replay.h"

#include <atomic>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/single.h"
#include "dear/schedule/conductor/testing/order_check.h"
#include "dear/schedule/policies/compressed.h"
#include "dear/schedule/policies/policy.h"
#include "dear/tools/replay/real_time.h"
#include "dear/tools/replay/testing/two_ranks.h"
#include "dear/workload/layers/testing/workloads.h"

namespace dear::replay_test {
namespace {

using dear::testing::on_two_ranks;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Workload make_workload(int layers, double seconds) {
  Workload workload = dear::testing::workload_of({.layers = static_cast<LayerId>(layers),
                                                  .elements = 1000,
                                                  .forward_seconds = seconds,
                                                  .backward_seconds = 2 * seconds});
  workload.update_seconds = seconds;
  return workload;
}

struct Job {
  explicit Job(const std::string& policy, int layers = 4, double seconds = 1e-4,
               const std::string& fusion = "layer")
      : workload(make_workload(layers, seconds)),
        grouping(Fusion::parse(fusion)(workload)),
        schedule(make_schedule(find_policy(policy), workload, grouping)) {}
  Workload workload;
  Grouping grouping;
  Schedule schedule;
};

TEST(RealTime, GivesEndsInTheirOrderWhoeverTellsThem) {
  RealTime time;
  time.begin();
  const double now = time.now_seconds();
  time.end_at({.step = 0, .iteration = 0}, now + 3e-3);
  time.end_at({.step = 1, .iteration = 0}, now + 1e-3);
  time.expect_end();
  time.ended({.span = {{.step = 2, .iteration = 0}, now, now + 2e-3}});
  std::vector<StepId> order;
  for (int i = 0; i < 3; ++i) order.push_back(time.next().which.step);
  EXPECT_EQ(order, (std::vector<StepId>{1, 2, 0}));
  EXPECT_DOUBLE_EQ(time.now_seconds(), now + 3e-3);  // when it was due
}

TEST(RealTime, NeverGoesBack) {
  RealTime time;
  time.begin();
  const double now = time.now_seconds();
  time.end_at({.step = 0, .iteration = 0}, now + 1e-3);
  EXPECT_DOUBLE_EQ(time.next().at_seconds, now + 1e-3);
  time.expect_end();
  time.ended({.span = {{.step = 1, .iteration = 0}, now, now + 0.5e-3}});  // told late
  EXPECT_DOUBLE_EQ(time.next().at_seconds, now + 1e-3);
}

TEST(RealTime, ThrowsWhatAnExecutorFailedWith) {
  RealTime time;
  time.begin();
  time.expect_end();
  time.ended({.span = {}, .error = std::make_exception_ptr(TransportError("the wire is cut"))});
  EXPECT_THROW(time.next(), TransportError);
  time.await_ends();
}

TEST(RealTime, IsAnErrorWhenNothingIsUnderWay) {
  RealTime time;
  time.begin();
  EXPECT_THROW(time.next(), std::logic_error);
}

class EveryPolicy : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Replay, EveryPolicy, ::testing::Values("serial", "wfbp", "dear-replicated", "dear"));

TEST_P(EveryPolicy, RespectsItsScheduleAndComputesForAsLongAsTheWorkloadSays) {
  const Job job(GetParam());
  const auto errors = on_two_ranks([&](int, Group& group) {
    const Replayed run = replay(job.schedule, job.workload, job.grouping, group, {.iterations = 5});
    EXPECT_THAT(run.spans, SizeIs(5 * job.schedule.steps().size()));
    EXPECT_THAT(conductor::order_violations(job.schedule, run.spans, {.tolerance_seconds = 1e-9}), SizeIs(0));
    ASSERT_THAT(run.iteration_seconds, SizeIs(4));
    EXPECT_THAT(run.iteration_seconds, Each(::testing::Ge(run.compute_seconds - 1e-9)));
    EXPECT_NEAR(run.compute_seconds, (GetParam() == "serial" || GetParam() == "wfbp") ? 13e-4 : 12e-4, 1e-9);
    for (const conductor::StepSpan& span : run.spans) {
      const Step& step = job.schedule.steps()[span.which.step];
      if (std::holds_alternative<Backward>(step.work)) {
        EXPECT_NEAR(span.end_seconds - span.begin_seconds, 2e-4, 1e-9);
      }
    }
  });
  EXPECT_THAT(errors, Each("ok"));
}

TEST(Replay, ALateWakeUpIsNotAddedToWhatFollows) {
  const Job job("wfbp", 300, 1e-6, "all");
  Group group(comm::make_single(), {});
  const Replayed run = replay(job.schedule, job.workload, job.grouping, group, {.iterations = 2});
  double previous = 0;
  for (const conductor::StepSpan& span : run.spans) {
    const Step& step = job.schedule.steps()[span.which.step];
    if (const auto* forward = std::get_if<Forward>(&step.work)) {
      if (forward->layer > 0) {
        EXPECT_DOUBLE_EQ(span.begin_seconds, previous);
      }
      previous = span.end_seconds;
    }
  }
}

TEST(Replay, RanksWithOtherSchedulesAreToldSo) {
  const Job one("dear"), other("wfbp");
  const auto errors = on_two_ranks([&](int rank, Group& group) {
    const Job& job = rank == 0 ? one : other;
    replay(job.schedule, job.workload, job.grouping, group);
  });
  EXPECT_THAT(errors, Each(HasSubstr("replay")));
}

TEST(Replay, AFailureOfOneRankEndsAll) {
  const Job job("dear", 4, 1e-3);
  const auto errors = on_two_ranks([&](int rank, Group& group) {
    if (rank == 1) {
      std::atomic<bool> began = false;
      std::thread saboteur([&, copy = group]() mutable {
        while (!began) std::this_thread::yield();
        copy.abort("rank 1 was told to stop");
      });
      began = true;
      try {
        replay(job.schedule, job.workload, job.grouping, group, {.iterations = 100'000});
      } catch (...) {
        saboteur.join();
        throw;
      }
      saboteur.join();
    } else {
      replay(job.schedule, job.workload, job.grouping, group, {.iterations = 100'000});
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 was told to stop")));
}

TEST(Replay, PlaysPiecesOfBuckets) {
  Workload workload = make_workload(2, 1e-4);
  workload.tensors[0].elements = 3'000'000;
  const Grouping grouping = Fusion::parse("all")(workload);
  const Schedule schedule = make_schedule(find_policy("bytescheduler"), workload, grouping);
  ASSERT_GT(schedule.steps().size(), 2 * workload.layers.size() + 3);  // several all-reduces
  const auto errors = on_two_ranks([&](int, Group& group) {
    const Replayed replayed = replay(schedule, workload, grouping, group, {.iterations = 3});
    EXPECT_THAT(replayed.iteration_seconds, SizeIs(2));
    EXPECT_THAT(replayed.spans, SizeIs(3 * schedule.steps().size()));
  });
  EXPECT_THAT(errors, Each("ok"));
}

// Every way of an encoded part: in halves, gathered, in two rounds; the codec takes what is
// foreseen, in turns with the program or beside it.
TEST(Replay, PlaysEncodedBuckets) {
  const Workload workload = make_workload(3, 1e-4);
  const Grouping grouping = Fusion::parse("layer")(workload);
  for (const char* const text : {"fp16,dense-below=0", "top-k:0.1,dense-below=0", "low-rank:1,dense-below=0",
                                 "sketch,dense-below=0"}) {
    SCOPED_TRACE(text);
    const CompressedSchedule made =
        make_compressed_schedule(find_policy("dear"), workload, grouping, {.ranks = 2},
                                 {.compression = Compression::parse(text), .codec = {.step_seconds = 1e-4}});
    for (const bool shares : {false, true}) {
      const auto errors = on_two_ranks([&](int, Group& group) {
        const Replayed run =
            replay(made.schedule, workload, grouping, group,
                   {.iterations = 3, .encodings = made.encodings, .codec_shares_compute = shares});
        EXPECT_THAT(run.spans, SizeIs(3 * made.schedule.steps().size()));
        EXPECT_THAT(conductor::order_violations(made.schedule, run.spans, {.tolerance_seconds = 1e-9}),
                    SizeIs(0));
        for (const conductor::StepSpan& span : run.spans) {
          if (!std::holds_alternative<Encode>(made.schedule.steps()[span.which.step].work)) continue;
          EXPECT_GE(span.end_seconds - span.begin_seconds, 1e-4 - 1e-9);
        }
      });
      EXPECT_THAT(errors, Each("ok"));
    }
  }
}

TEST(Replay, RefusesWhatItCannotPlay) {
  Group group(comm::make_single(), {});
  const Job job("dear");
  EXPECT_THROW(replay(job.schedule, job.workload, job.grouping, group, {.iterations = 1}), ConfigError);
  const Job nodes("hsdp");
  EXPECT_THROW(replay(nodes.schedule, nodes.workload, nodes.grouping, group), ScheduleError);
}

}  // namespace
}  // namespace dear::replay_test
