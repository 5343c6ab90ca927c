#include "dear/methods/pipeline/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::pipeline::timeline_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr ScheduleKind kGpipe = ScheduleKind::gpipe, k1f1b = ScheduleKind::one_f_one_b,
                       kInterleaved = ScheduleKind::interleaved, kZb = ScheduleKind::zb_h1;

// All stages of a place take as long as `whole` together; links take no time, but for what is said.
PipelineTimes alike(ScheduleKind schedule, int places, int rounds, int micro_batches, StageSeconds whole,
                    Transfer link = {}) {
  PipelineTimes times{
      .shape = {
          .schedule = schedule, .places = places, .stages_of_place = rounds, .micro_batches = micro_batches}};
  if (plans_warm_up(schedule)) times.shape.warm_up = least_warm_up(places, micro_batches);
  const auto stages = static_cast<std::size_t>(times.shape.stages());
  times.stages.assign(stages, {.forward = whole.forward / rounds,
                               .input_gradient = whole.input_gradient / rounds,
                               .weight_gradient = whole.weight_gradient / rounds});
  times.activations.assign(stages - 1, link);
  times.gradients.assign(stages - 1, link);
  return times;
}

double seconds_of(const PipelineTimes& times) { return play(times).iteration_seconds; }

// Section by section of what is known of these schedules in closed form.
TEST(Bubbles, AreThoseOfTheFormulas) {
  struct Case {
    double f, i, w;
  };
  for (const auto& [f, i, w] : {Case{1, 1, 1}, Case{2, 2, 1}, Case{2, 3, 1}, Case{3, 2, 1}, Case{3, 4, 3}}) {
    const double b = i + w;
    for (const int places : {1, 2, 3, 4, 7}) {
      for (const int m : {places, 2 * places, 4 * places}) {
        const double work = m * (f + b), plain = (places - 1) * (f + b);
        const StageSeconds whole{f, i, w};
        EXPECT_NEAR(seconds_of(alike(kGpipe, places, 1, m, whole)), work + plain, 1e-9);
        EXPECT_NEAR(seconds_of(alike(k1f1b, places, 1, m, whole)), work + plain, 1e-9);
        EXPECT_NEAR(seconds_of(alike(kZb, places, 1, m, whole)), work + (places - 1) * (f + i - w), 1e-9)
            << places << " " << m;
        for (const int rounds : {2, 3}) {
          EXPECT_NEAR(seconds_of(alike(kGpipe, places, rounds, m, whole)), work + plain / rounds, 1e-9);
          EXPECT_NEAR(seconds_of(alike(kInterleaved, places, rounds, m, whole)), work + plain / rounds, 1e-9);
        }
      }
    }
  }
}

TEST(Bubbles, AreThoseOfAPencil) {
  const StageSeconds ones{1, 1, 1};
  EXPECT_DOUBLE_EQ(seconds_of(alike(kGpipe, 2, 1, 4, ones)), 15);
  EXPECT_DOUBLE_EQ(seconds_of(alike(k1f1b, 2, 1, 4, ones)), 15);
  EXPECT_DOUBLE_EQ(seconds_of(alike(kInterleaved, 2, 2, 4, ones)), 13.5);
  EXPECT_DOUBLE_EQ(seconds_of(alike(kZb, 2, 1, 4, ones)), 13);
}

// Stages of seconds (1, 3, 2) and (2, 6, 4): sum(F) + (M - 1) max(F), and the same of B.
TEST(Bubbles, OfUnequalStages) {
  PipelineTimes times = alike(kGpipe, 3, 1, 6, {});
  times.stages = {{1, 1, 1}, {3, 3, 3}, {2, 2, 2}};
  EXPECT_DOUBLE_EQ(seconds_of(times), 63);
  times.shape.schedule = k1f1b;
  times.shape.warm_up = least_warm_up(3, 6);
  EXPECT_DOUBLE_EQ(seconds_of(times), 60);
  times.shape.micro_batches = 1;
  times.shape.warm_up = least_warm_up(3, 1);
  EXPECT_DOUBLE_EQ(seconds_of(times), 18);  // one after the other
}

std::vector<double> with_links(ScheduleKind schedule, const std::vector<int>& warm_up) {
  std::vector<double> seconds;
  for (const double link : {0, 1, 2, 3, 6}) {
    PipelineTimes times = alike(schedule, 2, 1, 8, {1, 1, 1}, {.busy_seconds = link});
    times.shape.warm_up = warm_up;
    seconds.push_back(seconds_of(times));
  }
  return seconds;
}

// Two stages of 1 + 2 s, eight micro-batches, links that each message has for 0, 1, 2, 3 and 6 s.
TEST(Links, AreHiddenByADeeperWarmUp) {
  EXPECT_THAT(with_links(k1f1b, {2, 1}), ElementsAre(27, 35, 43, 51, 78));
  EXPECT_THAT(with_links(k1f1b, {3, 1}), ElementsAre(27, 29, 33, 39, 60));
  EXPECT_THAT(with_links(k1f1b, {4, 1}), ElementsAre(27, 29, 31, 33, 60));
  EXPECT_THAT(with_links(kGpipe, {}), ElementsAre(27, 29, 38, 54, 102));
}

// Three stages of forwards of 1 s, two micro-batches, messages of 20 bytes over links of 10 bytes a second.
// The second message to stage 1 is under way from 3 s on, the first one to stage 2 from 4 s on: where both
// share a wire of 10 bytes a second, that one arrives at 6 s in place of 5 s, and this one at 7 s in place of
// 6 s.
TEST(Links, ShareAWire) {
  PipelineTimes times = alike(kGpipe, 3, 1, 2, {.forward = 1}, {.busy_seconds = 2, .bytes = 20});
  times.gradients.assign(2, {});
  EXPECT_DOUBLE_EQ(seconds_of(times), 9);
  times.shared_wires = {{.bytes_per_second = 10, .links = {{0, 1}, {1, 2}}}};
  EXPECT_DOUBLE_EQ(seconds_of(times), 10);
  times.shared_wires = {{.bytes_per_second = 20, .links = {{0, 1}, {1, 2}}},
                        {.bytes_per_second = 10, .links = {{1, 0}, {2, 1}}}};
  EXPECT_DOUBLE_EQ(seconds_of(times), 9);
}

TEST(Links, HaveAPlannedDepth) {
  const std::vector<int> plenty{8, 8};
  const auto planned = [&](double busy, double latency, const std::vector<int>& most) {
    return planned_warm_up(
        alike(k1f1b, 2, 1, 8, {1, 1, 1}, {.busy_seconds = busy, .latency_seconds = latency}), most);
  };
  EXPECT_THAT(planned(0, 0, plenty), ElementsAre(2, 1));
  EXPECT_THAT(planned(1, 0, plenty), ElementsAre(3, 1));  // 5 / 3
  EXPECT_THAT(planned(2, 0, plenty), ElementsAre(4, 1));  // 7 / 3
  EXPECT_THAT(planned(3, 0, plenty), ElementsAre(4, 1));
  EXPECT_THAT(planned(6, 0, plenty), ElementsAre(4, 1));   // 15 / 6: the link bounds the period
  EXPECT_THAT(planned(0, 6, plenty), ElementsAre(6, 1));   // 15 / 3: a latency keeps no link busy
  EXPECT_THAT(planned(0, 60, plenty), ElementsAre(8, 1));  // all micro-batches
  EXPECT_THAT(planned(0, 6, {4, 8}), ElementsAre(4, 1));   // as memory lets it
  EXPECT_TRUE(planned_warm_up(alike(kGpipe, 2, 1, 8, {1, 1, 1}), plenty).empty());
  // A latency is hidden whole: 27 s, and one way there and back.
  PipelineTimes times = alike(k1f1b, 2, 1, 8, {1, 1, 1}, {.latency_seconds = 6});
  times.shape.warm_up = {6, 1};
  EXPECT_DOUBLE_EQ(seconds_of(times), 27 + 12);
  times.shape.warm_up = {2, 1};
  EXPECT_GT(seconds_of(times), 60);
}

// For stages and links of any times it is never slower than without, and never less than the round trip
// takes: w >= round trip / period, where memory and micro-batches let it.
TEST(Links, ArePlannedSoThatNoPipelineIsSlower) {
  std::mt19937 random(8);
  std::uniform_real_distribution<double> draw(0, 1);
  double planned_sum = 0, least_sum = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int places = 2 + trial % 5, m = 4 + trial % 13;
    PipelineTimes times = alike(k1f1b, places, 1, m, {});
    double period = 0, round_trip = 0;
    for (std::size_t s = 0; s < times.stages.size(); ++s) {
      times.stages[s] = {0.5 + draw(random), 0.5 + draw(random), 0.5 + draw(random)};
      period = std::max(period, times.stages[s].all());
      round_trip += times.stages[s].all();
      if (s == 0) continue;
      for (Transfer* transfer : {&times.activations[s - 1], &times.gradients[s - 1]}) {
        *transfer = {draw(random) * (trial % 4), draw(random) * (trial % 3)};
        period = std::max(period, transfer->busy_seconds);
        round_trip += transfer->seconds();
      }
    }
    const double least = seconds_of(times);
    const std::vector<int> plenty(times.stages.size(), m);
    times.shape.warm_up = planned_warm_up(times, plenty);
    EXPECT_GE(times.shape.warm_up[0], std::min<double>(m, round_trip / period));
    const double planned = seconds_of(times);
    EXPECT_LE(planned, least * (1 + 1e-9));
    planned_sum += planned;
    least_sum += least;
    // Less memory than it asks for: still an order that runs.
    for (int& depth : times.shape.warm_up) depth = 1 + static_cast<int>(random() % 6);
    times.shape.warm_up = planned_warm_up(times, times.shape.warm_up);
    EXPECT_GT(seconds_of(times), 0);
  }
  EXPECT_LT(planned_sum, 0.95 * least_sum);
}

TEST(Orders, HoldAsManyForwardsAsIsKnown) {
  const auto held = [](ScheduleKind schedule, int places, int rounds, int m) {
    return most_held(alike(schedule, places, rounds, m, {}).shape);
  };
  EXPECT_THAT(held(kGpipe, 3, 1, 5), ElementsAre(5, 5, 5));
  EXPECT_THAT(held(k1f1b, 4, 1, 3), ElementsAre(3, 3, 2, 1));
  EXPECT_THAT(held(kZb, 4, 1, 8), ElementsAre(4, 4, 4, 4));
  const std::vector<std::int64_t> ones(8, 1);
  const auto chunks = [&](ScheduleKind schedule) {
    return most_held_bytes(alike(schedule, 4, 2, 8, {}).shape, ones);
  };
  EXPECT_THAT(chunks(kInterleaved), ElementsAre(11, 9, 7, 5));
  EXPECT_THAT(chunks(kGpipe), ElementsAre(16, 16, 16, 16));
  // Before its gradient of the input, a stage of zb-h1 holds as many as under 1f1b.
  for (const std::vector<Task>& order : orders(alike(kZb, 4, 1, 8, {}).shape)) {
    int now = 0, most = 0;
    for (const Task& task : order) {
      now += task.kind == TaskKind::forward ? 1 : task.kind == TaskKind::input_gradient ? -1 : 0;
      most = std::max(most, now);
    }
    EXPECT_EQ(most, 4 - order.front().stage);
  }
}

PipelineShape random_shape(std::mt19937& random) {
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  PipelineShape shape{.schedule = static_cast<ScheduleKind>(draw(0, 3)),
                      .places = draw(1, 5),
                      .stages_of_place = 1,
                      .micro_batches = draw(1, 9)};
  if (shape.schedule == kInterleaved) {
    shape.stages_of_place = draw(2, 3);
    shape.micro_batches *= shape.places;
  } else if (shape.schedule == kGpipe) {
    shape.stages_of_place = draw(1, 3);
  } else {
    for (int stage = 0; stage < shape.places; ++stage)
      shape.warm_up.push_back(draw(1, stage == 0 ? shape.micro_batches : shape.warm_up.back()));
  }
  return shape;
}

// Every stage and micro-batch has each of its tasks once, on its own place; and taking from any place
// whose next task has what it needs, one gets through all of them.
TEST(Orders, AreTopologicalAndHaveEachTaskOnce) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const PipelineShape shape = random_shape(random);
    const std::vector<std::vector<Task>> all = orders(shape);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(shape.places));
    std::set<std::tuple<TaskKind, int, int>> done;
    const auto is_done = [&](TaskKind kind, int stage, int m) { return done.contains({kind, stage, m}); };
    const bool split = shape.schedule == kZb;
    const TaskKind back = split ? TaskKind::input_gradient : TaskKind::backward;
    const auto ready = [&](const Task& task) {
      const auto [kind, s, m] = task;
      if (kind == TaskKind::forward) return s == 0 || is_done(kind, s - 1, m);
      if (kind == TaskKind::weight_gradient) return is_done(TaskKind::input_gradient, s, m);
      return is_done(TaskKind::forward, s, m) && (s + 1 == shape.stages() || is_done(back, s + 1, m));
    };
    std::vector<std::size_t> next(all.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t place = 0; place < all.size(); ++place) {
        while (next[place] < all[place].size() && ready(all[place][next[place]])) {
          const Task& task = all[place][next[place]++];
          EXPECT_EQ(task.stage % shape.places, static_cast<int>(place));
          EXPECT_TRUE(done.emplace(task.kind, task.stage, task.micro_batch).second);
          moved = true;
        }
      }
    }
    EXPECT_EQ(done.size(), static_cast<std::size_t>(shape.stages() * shape.micro_batches * (split ? 3 : 2)));
    for (std::size_t place = 0; place < all.size(); ++place) EXPECT_EQ(next[place], all[place].size());
    // Gradients add up in the order of micro-batches.
    std::map<int, int> last;
    for (const std::vector<Task>& order : all)
      for (const Task& task : order)
        if (releases(task.kind)) {
          EXPECT_EQ(task.micro_batch, last[task.stage]++);
        }
  }
}

// No step of a run begins before what it needs has ended, and a lane does one thing at a time.
TEST(Timeline, RespectsItsOrderForRandomTimes) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> draw(0, 3);
  for (int trial = 0; trial < 100; ++trial) {
    PipelineTimes times{.shape = random_shape(random)};
    for (int stage = 0; stage < times.shape.stages(); ++stage) {
      times.stages.push_back({draw(random), draw(random), draw(random)});
      if (stage == 0) continue;
      times.activations.push_back({draw(random), trial % 2 == 0 ? draw(random) : 0});
      times.gradients.push_back({draw(random), trial % 2 == 0 ? draw(random) : 0});
    }
    const Lowered lowered = lower(times);
    const Played played = play(lowered, times.shape.places);
    ASSERT_EQ(played.spans.size(), lowered.work.size());
    std::map<std::tuple<int, TaskKind, int>, std::pair<double, double>> at;
    std::vector<double> busy(static_cast<std::size_t>(times.shape.places));
    for (const conductor::StepSpan& span : played.spans) {
      const auto& [task, message] = lowered.work[span.which.step];
      if (message) continue;
      at[{task.stage, task.kind, task.micro_batch}] = {span.begin_seconds, span.end_seconds};
      busy[static_cast<std::size_t>(task.stage % times.shape.places)] +=
          span.end_seconds - span.begin_seconds;
    }
    const auto link = [&](const Transfer& t) {
      return times.shape.places == 1 ? 0 : t.busy_seconds + t.latency_seconds;
    };
    for (const auto& [key, span] : at) {
      const auto [stage, kind, m] = key;
      const auto s = static_cast<std::size_t>(stage);
      if (kind == TaskKind::forward && stage > 0) {
        EXPECT_GE(span.first, at.at({stage - 1, kind, m}).second + link(times.activations[s - 1]) - 1e-9);
      }
      if ((kind == TaskKind::backward || kind == TaskKind::input_gradient) &&
          stage + 1 < times.shape.stages()) {
        EXPECT_GE(span.first, at.at({stage + 1, kind, m}).second + link(times.gradients[s]) - 1e-9);
      }
    }
    for (std::size_t place = 0; place < busy.size(); ++place) {
      EXPECT_NEAR(played.places[place].busy_seconds, busy[place], 1e-9);
      double waits = 0;
      for (const Wait& wait : played.places[place].waits_for) {
        waits += wait.seconds;
        EXPECT_LE(wait.on_link_seconds, wait.seconds + 1e-9);
        EXPECT_GE(wait.on_link_seconds, -1e-9);
      }
      EXPECT_LE(waits, played.places[place].bubble_seconds + 1e-9);
    }
  }
}

// One micro-batch, two stages of 1 + 2 s, a link of 3 s and a latency of 1 s: the second waits 1 s for the
// first to compute and 4 s for the message, the first 2 + 1 s and 4 s.
TEST(Timeline, SaysWhoWaitsForWhom) {
  const Transfer link{.busy_seconds = 3, .latency_seconds = 1};
  const PipelineTimes times = alike(kGpipe, 2, 1, 1, {1, 1, 1}, link);
  const Lowered lowered = lower(times);
  const Played played = play(lowered, 2);
  EXPECT_DOUBLE_EQ(played.iteration_seconds, 14);
  const Wait& second = played.places[1].waits_for[0];
  EXPECT_DOUBLE_EQ(second.seconds, 5);
  EXPECT_DOUBLE_EQ(second.on_link_seconds, 4);
  const Wait& first = played.places[0].waits_for[1];
  EXPECT_DOUBLE_EQ(first.seconds, 11);
  EXPECT_DOUBLE_EQ(first.on_link_seconds, 4);
  EXPECT_EQ(played.places[0].waits_for[0].seconds, 0);
  EXPECT_DOUBLE_EQ(played.places[1].bubble_seconds, 11);
  const Trace trace = to_trace(lowered, played, "pencil", "modelled");
  ASSERT_EQ(trace.spans.size(), 6U);
  EXPECT_EQ(trace.spans[1].name, "send forward of stage 0, micro-batch 0");
  EXPECT_EQ(trace.spans[1].lane, "network to 1");
  EXPECT_EQ(trace.spans[2].rank, 1);
}

// Both send their gradients when they have them: the last stage after 13 s, the first after 15 s.
TEST(Timeline, EndsWithTheGradientsOfTiedParameters) {
  PipelineTimes times = alike(kGpipe, 2, 1, 4, {1, 1, 1});
  times.exchanges = {{.stages = {0, 1}, .there = {.busy_seconds = 5}, .back = {.busy_seconds = 9}}};
  EXPECT_DOUBLE_EQ(seconds_of(times), 22);
  times.exchanges[0].back.busy_seconds = 1;
  EXPECT_DOUBLE_EQ(seconds_of(times), 20);
}

TEST(Timeline, IsRefusedWithOneSentence) {
  const auto refused = [](auto change, const std::string& message) {
    PipelineTimes times = alike(k1f1b, 2, 1, 4, {1, 1, 1});
    change(times);
    EXPECT_THAT([&] { (void)lower(times); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  refused([](PipelineTimes& t) { t.stages.pop_back(); }, "a pipeline of 2 stages has times of 1");
  refused([&](PipelineTimes& t) { t.stages[0].forward = kNan; }, "the forward of a stage");
  refused([&](PipelineTimes& t) { t.gradients[0].busy_seconds = -1; }, "a message of a pipeline takes -1 s");
  refused([](PipelineTimes& t) { t.shape.places = 0; }, "has no stage");
  refused([](PipelineTimes& t) { t.shape.micro_batches = 0; }, "cannot run 0 micro-batches");
  refused([](PipelineTimes& t) { t.shape.micro_batches = 1 << 30; }, "are too many");
  refused([](PipelineTimes& t) { t.shape.stages_of_place = 2; }, "1f1b has one stage on each device, not 2");
  refused([](PipelineTimes& t) { t.shape.warm_up = {1}; }, "2 stages have 1 numbers of warm-up");
  refused([](PipelineTimes& t) { t.shape.warm_up = {5, 1}; }, "the warm-up of stage 0 is 5");
  refused([](PipelineTimes& t) { t.shape.warm_up = {1, 0}; }, "the warm-up of stage 1 is 0");
  refused([](PipelineTimes& t) { t.shape.warm_up = {1, 2}; }, "each would wait for the other");
  refused([](PipelineTimes& t) { t.shape.schedule = kGpipe; }, "gpipe has no warm-up to choose");
  refused(
      [](PipelineTimes& t) {
        t.shape.schedule = kInterleaved;
        t.shape.warm_up.clear();
      },
      "several stages on each device");
  refused(
      [](PipelineTimes& t) {
        t.shape = {.schedule = kInterleaved, .places = 2, .stages_of_place = 2, .micro_batches = 3};
      },
      "cannot run 3 micro-batches on 2 devices");
  EXPECT_EQ(find_schedule_kind("zb-h1"), kZb);
  EXPECT_THAT([] { (void)find_schedule_kind("1f1"); }, ThrowsMessage<ConfigError>(HasSubstr("1f1b")));
}

}  // namespace
}  // namespace dear::methods::pipeline::timeline_test
