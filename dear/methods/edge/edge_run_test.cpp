#include "dear/methods/edge/edge_run.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/methods/edge/draws.h"
#include "dear/methods/edge/fleet.h"
#include "dear/methods/edge/groups_in_test.h"
#include "dear/methods/edge/paba_file.h"

namespace dear::methods::edge::edge_run_test {
namespace {

using ::testing::HasSubstr;
using testing::refusal;

ClassificationShape small(Split split = Split::iid, int hidden = 0) {
  return {.devices = 8,
          .samples = 20,
          .classes = 4,
          .features = 6,
          .separation = 1.5,
          .split = split,
          .hidden = hidden,
          .tested = 200};
}
EdgeSettings few(EdgeSettings settings = {}) {
  settings.cohort = std::min(settings.cohort, 8);
  settings.rounds = std::min<std::int64_t>(settings.rounds, 12);
  return settings;
}

TEST(Classification, HasTheGradientOfItsLoss) {
  for (const int hidden : {0, 5}) {
    const Classification task(small(Split::iid, hidden));
    std::vector<double> point = task.start(), mean(point.size()), one(point.size());
    codec::Draw draw = draws_of(1, Purpose::samples, 0);
    for (double& value : point) value += 0.1 * normal(draw);
    for (int device = 0; device < 8; ++device) {
      task.gradient(device, point, 0, draw, one);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / 8;
    }
    for (std::size_t i = 0; i < point.size(); i += 3) {
      std::vector<double> above = point, below = point;
      above[i] += 1e-5;
      below[i] -= 1e-5;
      EXPECT_NEAR(mean[i], (task.loss(above) - task.loss(below)) / 2e-5, 1e-8) << hidden << ", " << i;
    }
  }
}

TEST(Classification, DealsSamplesAlikeOrSorted) {
  const ClassificationShape shape{.split = Split::sorted};
  const Classification sorted(shape), iid(ClassificationShape{});
  std::vector<int> totals(10);
  for (int device = 0; device < 20; ++device) {
    const std::vector<int> counts = sorted.classes_of(device);
    EXPECT_LE(10 - std::count(counts.begin(), counts.end(), 0), 2) << "two shards";
    for (std::size_t label = 0; label < 10; ++label) totals[label] += counts[label];
    const std::vector<int> others = iid.classes_of(device);
    EXPECT_GE(10 - std::count(others.begin(), others.end(), 0), 7);
  }
  EXPECT_THAT(totals, ::testing::Each(120)) << "every class equally often";
  for (const auto& [change, says] : std::vector<std::pair<void (*)(ClassificationShape&), const char*>>{
           {[](ClassificationShape& s) { s.devices = 0; }, "0 devices"},
           {[](ClassificationShape& s) { s.samples = 0; }, "0 samples of a device"},
           {[](ClassificationShape& s) { s.classes = 1; }, "one class"},
           {[](ClassificationShape& s) { s.hidden = -1; }, "-1 hidden units"},
           {[](ClassificationShape& s) { s.separation = NAN; }, "separation"}}) {
    ClassificationShape bad = small();
    change(bad);
    EXPECT_THAT(refusal([&] { Classification{bad}; }), HasSubstr(says));
  }
}

// One local step on all samples of all devices is gradient descent on the mean of their losses.
TEST(EdgeRun, OfAllDevicesAndOneStepIsCentralised) {
  const Classification task(small(Split::sorted));
  const std::vector<EdgeRound> rounds =
      run_edge(few({.scheduler = "round-robin", .cohort = 8, .local_steps = 1, .batch = 0}), task);
  std::vector<double> point = task.start(), one(point.size());
  codec::Draw draw = draws_of(1, Purpose::samples, 0);
  for (const EdgeRound& round : rounds) {
    EXPECT_NEAR(round.loss, task.loss(point), 1e-12) << "round " << round.number;
    std::vector<double> mean(point.size());
    for (int device = 0; device < 8; ++device) {
      task.gradient(device, point, 0, draw, one);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / 8;
    }
    for (std::size_t i = 0; i < mean.size(); ++i) point[i] -= 0.1 * mean[i];
  }
}

TEST(EdgeRun, OfCellsThatAverageOnceIsFlat) {
  const Classification task(small(Split::sorted));
  const auto flat = run_edge(few({.cohort = 8}), task);
  const auto cells = run_edge(few({.aggregator = "hierarchical", .cells = 3, .intra_rounds = 1}), task);
  ASSERT_EQ(flat.size(), cells.size());
  for (std::size_t round = 0; round < flat.size(); ++round)
    EXPECT_NEAR(flat[round].loss, cells[round].loss, 1e-12);
  const auto often = run_edge(few({.aggregator = "hierarchical", .cells = 2, .intra_rounds = 4}), task);
  EXPECT_GT(std::abs(often[1].loss - flat[1].loss), 1e-3);
}

// Devices have other classes each. By plain descent on all of them the loss has a least value, which TAMUNA
// reaches, of all devices and of some, and a mean of several local steps does not.
TEST(EdgeRun, OfShiftsReachesTheMinimumThatMeansMiss) {
  ClassificationShape shape = small(Split::sorted);
  shape.ridge = 0.1;
  const Classification task(shape);
  std::vector<double> point = task.start(), one(point.size());
  codec::Draw draw = draws_of(1, Purpose::samples, 0);
  for (int step = 0; step < 3000; ++step) {
    std::vector<double> mean(point.size());
    for (int device = 0; device < shape.devices; ++device) {
      task.gradient(device, point, 0, draw, one);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / shape.devices;
    }
    for (std::size_t i = 0; i < mean.size(); ++i) point[i] -= 0.3 * mean[i];
  }
  const double least = task.loss(point);
  const auto above = [&](const char* aggregator, int cohort, int owners) {
    return run_edge({.aggregator = aggregator,
                     .cohort = cohort,
                     .local_steps = 5,
                     .batch = 0,
                     .owners = owners,
                     .rounds = 1500},
                    task)
               .back()
               .loss -
           least;
  };
  EXPECT_GT(above("mean", 8, 0), 1e-4);
  EXPECT_NEAR(above("tamuna", 8, 0), 0, 1e-11);
  EXPECT_NEAR(above("tamuna", 8, 3), 0, 1e-11);
  EXPECT_NEAR(above("tamuna", 4, 2), 0, 1e-11);
}

// As drawn ones, where they are given as drawn.
TEST(EdgeRun, OfDevicesOfAFileIsThatOfTheSameDevicesDrawn) {
  const Classification task(small());
  const EdgeSettings drawn = few();
  EdgeSettings given = drawn;
  std::string file;
  for (const double distance : draw_distances(drawn.cell, 8, drawn.seed)) {
    codec::Draw draw = draws_of(drawn.seed, Purpose::place, 1, static_cast<int>(given.devices.size()));
    given.devices.push_back({.distance_m = distance, .frequency_hz = 1e8 + unit(draw) * 9e8});
    file += fmt::format(R"({}{{"distance_m": {}, "frequency_hz": {}}})", file.empty() ? "" : ", ", distance,
                        given.devices.back().frequency_hz);
  }
  const auto with = [](const std::string& devices) {
    return parse_devices(R"({"format": "dear-edge-devices", "version": 1, "devices": [)" + devices + "]}",
                         "f.json");
  };
  EXPECT_EQ(trace_lines("", run_edge(given, task)), trace_lines("", run_edge(drawn, task)));
  given.devices = with(file);
  EXPECT_EQ(trace_lines("", run_edge(given, task)), trace_lines("", run_edge(drawn, task)));
  given.devices.front().distance_m *= 3;
  EXPECT_NE(trace_lines("", run_edge(given, task)), trace_lines("", run_edge(drawn, task)));
  EXPECT_THAT(refusal([&] { with(R"({"distance_m": 0, "frequency_hz": 1})"); }), HasSubstr("above 0"));
  EXPECT_THAT(refusal([&] { with(R"({"distance_m": 5})"); }), HasSubstr("frequency_hz"));
  EXPECT_THAT(refusal([&] { with(""); }), HasSubstr("must have a device"));
  EXPECT_THAT(refusal([&] { with("7"); }), HasSubstr("f.json"));
  given.devices.pop_back();
  EXPECT_THAT(refusal([&] { run_edge(given, task); }), HasSubstr("8 devices learn"));
  EXPECT_THAT(refusal([&] {
                run_edge(
                    few({.aggregator = "hierarchical", .devices = std::vector<EdgeDevice>(8, {100, 1e9})}),
                    task);
              }),
              HasSubstr("small cells"));
}

TEST(EdgeRun, OfShiftsSendsThePartOfAMask) {
  const Classification task(small());
  const auto sent = [&](int owners) {
    return run_edge(few({.aggregator = "tamuna", .cohort = 4, .owners = owners}), task).back().bits_up;
  };
  EXPECT_EQ(sent(0), 12 * 4 * 32 * 28.0);
  EXPECT_EQ(sent(2), 12 * 2 * 32 * 28.0);
}

TEST(EdgeRun, OfEveryNameLearnsAndCounts) {
  const Classification task(small());
  const auto learns = [&](const EdgeSettings& settings, const std::string& name) {
    const auto rounds = run_edge(few(settings), task);
    const auto again = run_edge(few(settings), task);
    EXPECT_EQ(trace_lines("", rounds), trace_lines("", again)) << name;
    EXPECT_LT(rounds.back().loss, 0.8 * rounds.front().loss) << name;
    EXPECT_GT(rounds.back().accuracy, rounds.front().accuracy) << name;
    for (std::size_t round = 1; round < rounds.size(); ++round) {
      EXPECT_GT(rounds[round].seconds, rounds[round - 1].seconds) << name;
      EXPECT_GT(rounds[round].joules, rounds[round - 1].joules) << name;
    }
    return rounds;
  };
  for (const char* scheduler : {"random", "round-robin", "best-channel", "bn2", "bc-bn2", "bn2-c",
                                "proportional-fair", "age-based", "fastest-k"}) {
    const auto rounds = learns({.scheduler = scheduler}, scheduler);
    EXPECT_EQ(rounds.back().participants.size(), 4U);
    EXPECT_EQ(rounds.back().bits_up, 12 * 4 * 32 * 28.0) << "rounds, devices, bits, (6 + 1) 4 parameters";
  }
  for (const char* scheduler : {"greedy", "most"})
    learns({.scheduler = scheduler, .budget_seconds = 0.5}, scheduler);
  for (const char* aggregator : {"mean", "qsgd", "ternary", "sign", "sign-majority", "top-k", "over-the-air",
                                 "over-the-air-fixed", "hierarchical", "gossip", "choco", "tamuna"}) {
    const auto rounds = learns(
        {.aggregator = aggregator, .cohort = 8, .quantiser = {.levels = 8, .ratio = 0.25}}, aggregator);
    const bool analogue = std::string_view(aggregator).starts_with("over");
    EXPECT_EQ(rounds.back().channel_uses, analogue ? 12 * 14 : 0) << "28 reals are 14 complex symbols";
  }
}

// Round 0 by a pencil: the model to the slowest receiver, computing, and a band that all share.
TEST(EdgeRun, TakesTheTimeOfItsParts) {
  const Classification task(small());
  const EdgeSettings settings = few({.scheduler = "round-robin", .allocator = "equal", .cohort = 2});
  const Fleet fleet(settings, task, 1);
  double slowest = 0, worst = INFINITY;
  for (const int device : {0, 1}) worst = std::min(worst, fleet.channel_hz(0, device));
  const double bits = 32 * 28, down = bits / (1e7 * std::log2(1 + 100 * worst / 1e7));
  for (const int device : {0, 1})
    slowest = std::max(slowest, fleet.compute_seconds(0, device) +
                                    bits / (5e6 * std::log2(1 + fleet.channel_hz(0, device) / 5e6)));
  EXPECT_NEAR(run_edge(settings, task)[1].seconds, down + slowest, 1e-9);
}

TEST(EdgeRun, EndsAtALimitAndLeavesOutWhoIsLate) {
  const Classification task(small());
  const auto limited = run_edge(few({.seconds = 1}), task);
  EXPECT_GE(limited.back().seconds, 1);
  EXPECT_LT(limited[limited.size() - 2].seconds, 1);
  const auto late = run_edge(few({.cohort = 8, .deadline_seconds = 0.3}), task);
  std::set<std::size_t> counts;
  for (std::size_t round = 1; round < late.size(); ++round) {
    EXPECT_LE(late[round].seconds, 0.3 * static_cast<double>(round) + 1e-12);
    counts.insert(late[round].participants.size());
  }
  EXPECT_LT(*counts.begin(), 8U);
  // A threshold that truncates all: nothing arrives, and nothing changes.
  const auto silent = run_edge(few({.aggregator = "over-the-air", .air = {.threshold = 40}}), task);
  EXPECT_EQ(silent.front().loss, silent.back().loss);
}

TEST(EdgeRun, WritesATrace) {
  const Classification task(small());
  const std::string lines = trace_lines("one", run_edge(few({.rounds = 2}), task));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), ','), 3 * 9);
  EXPECT_THAT(trace_header(), HasSubstr("seconds,participants,bits_up"));
}

TEST(EdgeRun, RefusesWhatCannotBeInOneSentence) {
  const Classification task(small());
  struct Refusal {
    EdgeSettings settings;
    const char* says;
  };
  for (const Refusal& one : std::vector<Refusal>{
           {{.scheduler = "randon"}, "did you mean random"},
           {{.aggregator = "maen"}, "did you mean mean"},
           {{.allocator = "max-min"}, "no allocator 'max-min'"},
           {{.cell = {.bandwidth_hz = 0}}, "the bandwidth of a cell is 0"},
           {{.cohort = 9}, "a cohort of 9 of 8 devices"},
           {{.cohort = 0}, "a cohort of 0"},
           {{.scheduler = "greedy"}, "fills a budget"},
           {{.local_steps = 0}, "of 0 steps"},
           {{.batch = -1}, "on -1 samples"},
           {{.step_size = NAN}, "the step size is nan"},
           {{.cycles_per_sample = 0}, "cycles a sample"},
           {{.slowest_hz = 2e9}, "give the lower first"},
           {{.random_share = -1}, "random share"},
           {{.deadline_seconds = 1e-6}, "no device computes within the deadline"},
           {{.aggregator = "tamuna", .owners = 1}, "1 owners of an element in a cohort of 4"},
           {{.aggregator = "tamuna", .owners = 5}, "give from 2 to 4"},
           {{.aggregator = "tamuna", .deadline_seconds = 10}, "leave the deadline out"},
           {{.aggregator = "qsgd", .quantiser = {.levels = 0}}, "0 levels"},
           {{.aggregator = "over-the-air", .air = {.threshold = 0}}, "infinite power"},
           {{.aggregator = "over-the-air", .air = {.snr = 0}}, "0 times the noise"},
           {{.aggregator = "hierarchical", .cells = 9}, "dealt to 9 cells"},
           {{.aggregator = "hierarchical", .intra_rounds = 0}, "0 rounds in a cell"},
           {{.aggregator = "gossip", .graph = "erdos-renyi", .density = 0}, "does not reach"},
           {{.rounds = 0}, "0 rounds"},
       }) {
    const std::string said = refusal([&] { run_edge(one.settings, task); });
    EXPECT_THAT(said, HasSubstr(one.says));
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
  EXPECT_THROW(run_edge({.cohort = 8, .step_size = 1e200}, task), Error);
}

TEST(PabaFiles, AreReadAndRefusedByPlace) {
  const PabaProblem problem = testing::random_problem(2, 2, 4, 0.1);
  const std::string text = groups_json(problem);
  const PabaFile read = parse_groups(text, "a.json");
  EXPECT_EQ(read.problem.groups[1][1].frequency_hz, problem.groups[1][1].frequency_hz);
  EXPECT_EQ(read.problem.groups[0][1].overhead_seconds, problem.groups[0][1].overhead_seconds);
  EXPECT_EQ(solve_paba(read.problem, "joint").seconds, solve_paba(problem, "joint").seconds);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return changed;
  };
  for (const auto& [bad, says] : std::vector<std::pair<std::string, const char*>>{
           {with("\"logistic\"", "\"resnet\""), "objective: must be logistic, linear or svm"},
           {with("\"frequency_hz\"", "\"frequency\""), "groups[0][0]"},
           {with("1000000", "-1"), "parameters"},
           {with("\"logistic\",", "\"logistic\", \"lost\": [{\"group\": 1}],"), "lost[0]"},
           {"{", "a.json"}})
    EXPECT_THAT(refusal([&] { parse_groups(bad, "a.json"); }), HasSubstr(says));
  const PabaFile lost =
      parse_groups(with("\"logistic\",",
                        "\"logistic\", \"deadline_seconds\": 3, \"lost\": [{\"group\": 1, \"worker\": 0}],"),
                   "a");
  EXPECT_EQ(lost.lost[0].group, 1);
  EXPECT_EQ(lost.deadline_seconds, 3);
}

}  // namespace
}  // namespace dear::methods::edge::edge_run_test
