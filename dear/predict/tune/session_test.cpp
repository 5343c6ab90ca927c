#include "dear/predict/tune/session.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/predict/tune/draws.h"

namespace dear::tune::session_test {
namespace {

Candidates line(std::size_t count) {
  Candidates all;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(i) / static_cast<double>(count - 1);
    all.push_back({.name = std::to_string(i), .values = {x}, .position = {x}});
  }
  return all;
}

// Seconds of candidates from 0 to 1: a valley at 0.6, a third slower at 0, a sixth at 1.
double bowl(double x) { return 0.3 * (1 + (x - 0.6) * (x - 0.6)); }
double steep(double x) { return 0.3 * (1 + 8 * std::abs(x - 0.6)); }

// A job of so many iterations that obeys a session; what it takes, and what the best candidate would.
struct Job {
  std::function<double(std::size_t candidate, int iteration)> seconds;
  double noise = 0;
  std::uint64_t seed = 1;

  double run(Session& session, int iterations) {
    Draws draws(seed);
    double total = 0;
    for (int i = 0; i < iterations; ++i) {
      const double taken = seconds(session.current(), i) * std::exp(noise * draws.normal());
      total += taken;
      const std::size_t before = session.current();
      const std::optional<std::size_t> next = session.iteration(taken);
      EXPECT_EQ(next.has_value(), session.current() != before);
      EXPECT_EQ(next.value_or(before), session.current());
    }
    return total;
  }
};

double at(std::size_t candidate) { return static_cast<double>(candidate) / 40; }

TEST(Session, FindsTheValleyAndStays) {
  Session session(line(41), 0);
  EXPECT_EQ(session.state(), State::baseline);
  Job{.seconds = [](std::size_t c, int) { return bowl(at(c)); }}.run(session, 300);
  EXPECT_TRUE(session.converged());
  EXPECT_NEAR(at(session.current()), 0.6, 0.08);
  EXPECT_EQ(session.trials().front().candidate, 0U);
  EXPECT_EQ(session.trials().front().state, State::baseline);
  EXPECT_DOUBLE_EQ(session.trials().front().seconds, bowl(0));
  std::int64_t at_iteration = 0;
  for (const Trial& trial : session.trials()) {
    EXPECT_EQ(trial.at_iteration, at_iteration);
    at_iteration += trial.iterations;
  }
  EXPECT_LT(at_iteration, 120);
}

// Without noise nothing excuses an end that is slower than the start.
TEST(Session, NeverEndsSlowerThanItBegan) {
  for (std::uint64_t seed = 1; seed <= testing::rounds(80U); ++seed) {
    Draws draws(seed);
    std::vector<double> times;
    for (int i = 0; i < 30; ++i) times.push_back(0.1 * std::exp(draws.unit()));  // as jagged as can be
    const std::size_t start = draws.below(30);
    Session session(line(30), start);
    Job{.seconds = [&](std::size_t c, int) { return times[c]; }}.run(session, 400);
    ASSERT_TRUE(session.converged()) << seed;
    EXPECT_LE(times[session.current()], times[start]) << seed;
  }
}

TEST(Session, WithNoiseItEndsNoSlowerThanNoiseTells) {
  int slower = 0;
  for (std::uint64_t seed = 1; seed <= testing::rounds(60U); ++seed) {
    Draws draws(seed);
    const double valley = draws.unit();
    const double depth = 0.5 * draws.unit();
    const auto seconds = [&](std::size_t c, int) { return 0.3 * (1 + depth * std::pow(at(c) - valley, 2)); };
    const std::size_t start = draws.below(41);
    Session session(line(41), start);
    Job{.seconds = seconds, .noise = 0.05, .seed = seed}.run(session, 500);
    ASSERT_TRUE(session.converged()) << seed;
    const double ratio = seconds(session.current(), 0) / seconds(start, 0);
    EXPECT_LT(ratio, 1.1) << seed;
    slower += ratio > 1.02 ? 1 : 0;
  }
  EXPECT_LE(slower, 2);
}

// 500 iterations, tuning included, against 500 of the best, from both ends of a valley whose ends are 5.8 and
// 4.2 times as slow: the trials stay below what they may cost.
TEST(Session, TrialsCostNoMoreThanTheyMay) {
  int expensive = 0;
  for (std::uint64_t seed = 1; seed <= testing::rounds(40U); ++seed) {
    for (const std::size_t start : {std::size_t{0}, std::size_t{40}, std::size_t{24}}) {
      Session session(line(41), start);
      double in_trials = 0;
      Draws draws(seed);
      for (int i = 0; i < 500; ++i) {
        const double taken = steep(at(session.current())) * std::exp(0.03 * draws.normal());
        if (session.state() == State::trials) in_trials += taken / steep(0.6) - 1;
        session.iteration(taken);
        EXPECT_LE(session.spent_iterations(), 12 + 2 * 4.8 * 1.1);
      }
      ASSERT_TRUE(session.converged());
      // The budget counts iterations of the best so far, this those of the best of all.
      EXPECT_LE(in_trials, 32) << seed << " " << start;
      expensive += in_trials > 25 ? 1 : 0;
      EXPECT_LE(steep(at(session.current())), 1.25 * steep(0.6)) << seed << " " << start;
    }
  }
  EXPECT_LE(expensive, 2);
}

TEST(Session, ABudgetThatIsUsedUpEndsTheTrials) {
  SessionOptions options;
  options.budget_iterations = 0.01;
  Session session(line(41), 24, options);
  Job{.seconds = [](std::size_t c, int) { return steep(at(c)); }}.run(session, 60);
  EXPECT_TRUE(session.converged());
  EXPECT_EQ(session.current(), 24U);
  ASSERT_EQ(session.trials().size(), 2U);
  EXPECT_NE(session.trials()[1].result, TrialResult::measured);
  EXPECT_LE(session.trials()[1].iterations, 2);
}

// A checkpoint every so often takes as long as twenty iterations.
TEST(Session, ChangesThatTakeLongLeaveLessToTry) {
  const auto trials_when_paying = [](double seconds) {
    SessionOptions options;
    options.tuner.trials = 30;
    Session session(line(41), 0, options);
    Draws draws(5);
    for (int i = 0; i < 400; ++i) {
      const double taken = bowl(at(session.current())) * std::exp(0.02 * draws.normal());
      if (session.iteration(taken)) session.paid(seconds);
    }
    EXPECT_TRUE(session.converged());
    return session.trials().size();
  };
  const std::size_t free = trials_when_paying(0);
  EXPECT_LT(trials_when_paying(2), free);  // seven iterations each time
  EXPECT_LT(trials_when_paying(100), 6U);
  EXPECT_EQ(trials_when_paying(std::nan("")), free);
}

TEST(Session, StallsAreIgnored) {
  for (int every = 7; every <= 40; ++every) {
    Session session(line(41), 0);
    Job{.seconds = [&](std::size_t c, int i) { return bowl(at(c)) * (i % every == every - 1 ? 20 : 1); }}.run(
        session, 600);
    EXPECT_TRUE(session.converged()) << every;
    EXPECT_LE(bowl(at(session.current())), 1.01 * bowl(0.6)) << every;
    EXPECT_TRUE(std::none_of(session.trials().begin(), session.trials().end(), [](const Trial& trial) {
      return trial.state == State::drifted;
    })) << every;
  }
}

// At iteration 400 all gets slower, and the valley moves: as when a network halves its speed.
TEST(Session, DriftIsSeenAndTunedAgain) {
  for (std::uint64_t seed = 1; seed <= testing::rounds(25U); ++seed) {
    const auto later = [](std::size_t c) { return 0.5 * (1 + 2 * std::pow(at(c) - 0.2, 2)); };
    const auto seconds = [&](std::size_t c, int i) { return i < 400 ? bowl(at(c)) : later(c); };
    Session session(line(41), 20);
    Job{.seconds = seconds, .noise = 0.02, .seed = seed}.run(session, 900);
    EXPECT_TRUE(session.converged()) << seed;
    const auto drifted = std::find_if(session.trials().begin(), session.trials().end(),
                                      [](const Trial& trial) { return trial.state == State::drifted; });
    ASSERT_NE(drifted, session.trials().end()) << seed;
    EXPECT_GE(drifted->at_iteration, 400) << seed;
    EXPECT_LE(drifted->at_iteration, 430) << seed;
    EXPECT_LE(later(session.current()), 1.05 * 0.5) << seed;
  }
}

// What is told after a drift leads where measurements before it did not.
TEST(Session, WaitsToBeToldWhatADriftChanged) {
  SessionOptions options;
  options.told_after_drift = true;
  const auto later = [](std::size_t c) { return 0.5 * (1 + 2 * std::pow(at(c) - 0.1, 2)); };
  Session session(line(41), 20, options);
  EXPECT_THROW(session.expect({}), ConfigError);
  for (int i = 0; i < 700; ++i) {
    session.iteration(i < 400 ? bowl(at(session.current())) : later(session.current()));
    EXPECT_EQ(session.waits(), session.state() == State::drifted);
    EXPECT_TRUE(!session.waits() || i >= 400);
    if (!session.waits() || i < 500) continue;
    // Until then nothing was tried.
    EXPECT_NEAR(at(session.current()), 0.6, 0.08);
    EXPECT_THROW(session.expect({.seconds = {1, 2, 3}}), ConfigError);
    Prior prior;
    for (std::size_t c = 0; c < 41; ++c) prior.seconds.push_back(3 * later(c));
    session.expect(prior);
    EXPECT_FALSE(session.waits());
    EXPECT_EQ(session.current(), 4U);
    EXPECT_THROW(session.expect(prior), ConfigError);
  }
  EXPECT_TRUE(session.converged());
  EXPECT_EQ(session.current(), 4U);
  EXPECT_EQ(std::count_if(session.trials().begin(), session.trials().end(),
                          [](const Trial& trial) { return trial.state == State::drifted; }),
            1);
}

TEST(Session, GettingFasterIsADriftToo) {
  Session session(line(41), 24);
  Job{.seconds = [](std::size_t c, int i) { return bowl(at(c)) * (i < 300 ? 1 : 0.7); }}.run(session, 600);
  EXPECT_EQ(session.trials().back().at_iteration >= 300, true);
  EXPECT_TRUE(session.converged());
}

TEST(Session, NoiseIsNoDrift) {
  for (std::uint64_t seed = 1; seed <= testing::rounds(25U); ++seed) {
    Session session(line(41), 24);
    Job{.seconds = [](std::size_t c, int) { return bowl(at(c)); }, .noise = 0.08, .seed = seed}.run(session,
                                                                                                    3000);
    EXPECT_TRUE(std::none_of(session.trials().begin(), session.trials().end(), [](const Trial& trial) {
      return trial.state == State::drifted;
    })) << seed;
  }
}

// A load that comes and goes: each tuning that changes nothing doubles the rest after it.
TEST(Session, AnOscillationIsNotTunedForEver) {
  Session session(line(41), 24);
  Job{.seconds = [](std::size_t, int i) { return i % 200 < 100 ? 0.3 : 0.5; }}.run(session, 20'000);
  const auto drifts = std::count_if(session.trials().begin(), session.trials().end(),
                                    [](const Trial& trial) { return trial.state == State::drifted; });
  EXPECT_GE(drifts, 2);
  EXPECT_LE(drifts, 12);
}

TEST(Session, WhatWasLearnedIsWhereTheNextOneBegins) {
  Session first(line(41), 0);
  const auto seconds = [](std::size_t c, int) { return bowl(at(c)); };
  Job{.seconds = seconds, .noise = 0.02}.run(first, 300);
  ASSERT_TRUE(first.converged());
  SessionOptions options;
  options.learned = first.learned();
  Session second(line(41), 0, options);
  Job{.seconds = seconds, .noise = 0.02, .seed = 2}.run(second, 300);
  EXPECT_TRUE(second.converged());
  EXPECT_LE(bowl(at(second.trials().at(1).candidate)), 1.02 * bowl(0.6));
  EXPECT_LE(second.trials().size(), first.trials().size());
  EXPECT_LE(bowl(at(second.current())), 1.02 * bowl(0.6));
}

TEST(Session, APriorThatIsRightEndsItSoon) {
  SessionOptions options;
  for (std::size_t c = 0; c < 41; ++c) options.tuner.prior.seconds.push_back(0.5 * bowl(at(c)));
  Session session(line(41), 0, options);
  Job{.seconds = [](std::size_t c, int) { return bowl(at(c)); }}.run(session, 100);
  EXPECT_TRUE(session.converged());
  EXPECT_EQ(session.trials().at(1).candidate, 24U);
  EXPECT_EQ(session.current(), 24U);
  EXPECT_LE(session.trials().size(), 5U);
}

TEST(Session, OtherMethodsWorkAsWell) {
  for (const Method& method : methods()) {
    SessionOptions options;
    options.method = method.name;
    Session session(line(41), 3, options);
    Job{.seconds = [](std::size_t c, int) { return bowl(at(c)); }}.run(session, 600);
    EXPECT_TRUE(session.converged()) << method.name;
    EXPECT_LE(bowl(at(session.current())), bowl(at(3))) << method.name;
  }
}

TEST(Session, OneCandidateHasNothingToTune) {
  const Candidates one{{.name = "all", .values = {1}, .position = {0.5}}};
  Session session(one, 0);
  Job{.seconds = [](std::size_t, int) { return 0.1; }}.run(session, 100);
  EXPECT_TRUE(session.converged());
  EXPECT_EQ(session.current(), 0U);
}

TEST(Session, Refusals) {
  EXPECT_THROW(Session(line(3), 3), ConfigError);
  EXPECT_THROW(Session({}, 0), ConfigError);
  EXPECT_THROW(Session(line(3), 0, {.learned = {{.candidate = 7, .seconds = 1}}}), ConfigError);
  EXPECT_THROW(Session(line(3), 0, {.method = "guessing"}), ConfigError);
  Session session(line(3), 0);
  EXPECT_EQ(session.iteration(NAN), std::nullopt);
  EXPECT_EQ(session.iteration(-1), std::nullopt);
  EXPECT_EQ(session.trials().size(), 0U);
}

TEST(Window, SkipsWhatSettlesAndStopsWhenItKnowsEnough) {
  Window window({.warm_up_iterations = 2, .least_iterations = 3, .most_iterations = 10});
  EXPECT_EQ(window.add(9), Window::State::open);
  EXPECT_EQ(window.add(5), Window::State::open);
  EXPECT_EQ(window.add(1.00), Window::State::open);
  EXPECT_EQ(window.add(1.01), Window::State::open);
  EXPECT_EQ(window.add(1.00), Window::State::enough);
  EXPECT_EQ(window.seconds(), 1);
  EXPECT_EQ(window.iterations(), 5);
}

TEST(Window, AnOutlierDoesNotCount) {
  Window window({.warm_up_iterations = 0, .least_iterations = 4, .most_iterations = 10});
  for (const double seconds : {1.0, 1.02, 50.0, 0.98, 1.0}) window.add(seconds);
  EXPECT_EQ(window.state(), Window::State::enough);
  EXPECT_EQ(window.seconds(), 1);
  EXPECT_LT(window.noise_seconds(), 0.03);
}

TEST(Window, NoiseTakesMoreIterationsButNotForEver) {
  Draws draws(4);
  Window window;
  int told = 0;
  while (window.state() == Window::State::open) {
    window.add(std::exp(0.2 * draws.normal()));
    ++told;
  }
  EXPECT_EQ(told, 11);
  EXPECT_NEAR(window.seconds(), 1, 0.2);
}

TEST(Window, GivesUpWhatIsPlainlySlowerButNotForOneStall) {
  Window slow({}, 1.0);
  EXPECT_EQ(slow.add(1.8), Window::State::open);
  EXPECT_EQ(slow.add(1.6), Window::State::hopeless);
  EXPECT_EQ(slow.seconds(), 1.6);
  Window stalled({}, 1.0);
  for (const double seconds : {30.0, 1.0, 1.0, 1.0}) stalled.add(seconds);
  EXPECT_EQ(stalled.state(), Window::State::enough);
  EXPECT_EQ(stalled.seconds(), 1);
}

}  // namespace
}  // namespace dear::tune::session_test
