#include "dear/train/autograd/iteration_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/autograd/gradient_arrivals.h"

namespace dear::iteration_state_test {
namespace {

using autograd::GradientArrivals;
using autograd::IterationState;
using ::testing::AllOf;
using ::testing::HasSubstr;
using State = IterationState::State;

std::exception_ptr some_error() { return std::make_exception_ptr(TimeoutError("rank 1 is stuck")); }

TEST(IterationState, LearnsUntilBucketsAreMade) {
  IterationState state(0);
  EXPECT_EQ(state.now(), State::learning);
  EXPECT_FALSE(state.begins_pass(1));
  state.pass_began(1);
  state.pass_ended();
  state.given_up();
  EXPECT_EQ(state.now(), State::learning);
  EXPECT_FALSE(state.sends());
  state.step_taken();
  EXPECT_EQ(state.now(), State::ready);
}

TEST(IterationState, GoesThroughAnIteration) {
  IterationState state(0);
  state.step_taken();
  for (int iteration = 0; iteration < 2; ++iteration) {
    EXPECT_FALSE(state.sends());
    EXPECT_NO_THROW(state.require_between_steps("regroup"));
    for (const int pass : {1, 2}) {  // two passes make a step
      EXPECT_TRUE(state.begins_pass(pass));
      state.pass_began(pass);
      EXPECT_EQ(state.now(), State::backward);
      EXPECT_FALSE(state.begins_pass(pass));
      EXPECT_TRUE(state.sends());
      state.pass_ended();
      EXPECT_EQ(state.now(), State::pending);
      EXPECT_TRUE(state.sends());
    }
    iteration == 0 ? state.step_taken() : state.given_up();
    EXPECT_EQ(state.now(), State::ready);
  }
}

TEST(IterationState, IsClosedUntilTheStep) {
  IterationState state(0);  // while learning, too
  for (int iteration = 0; iteration < 3; ++iteration) {
    state.closed();
    EXPECT_EQ(state.now(), State::closed);
    EXPECT_TRUE(state.sends());
    EXPECT_TRUE(state.begins_pass(1));  // gradients may have been dropped
    EXPECT_THROW(state.require_between_steps("regroup"), ConfigError);
    iteration == 1 ? state.given_up() : state.step_taken();
    EXPECT_EQ(state.now(), State::ready);
  }
}

TEST(IterationState, APassWithinAPassBeginsAnew) {
  IterationState state(0);
  state.step_taken();
  state.pass_began(1);
  EXPECT_TRUE(state.begins_pass(2));  // a checkpointed layer
  state.pass_began(2);
  state.pass_ended();
  EXPECT_TRUE(state.begins_pass(1));  // the outer one goes on
  state.pass_began(1);
  EXPECT_TRUE(state.begins_pass(3));  // it ended by an exception, and nobody said so
  state.step_taken();
  EXPECT_EQ(state.now(), State::ready);
}

TEST(IterationState, RefusesWhatBelongsBetweenSteps) {
  IterationState state(3);
  EXPECT_NO_THROW(state.require_between_steps("regroup"));
  state.step_taken();
  state.pass_began(1);
  for (const bool ended : {false, true}) {
    if (ended) state.pass_ended();
    try {
      state.require_between_steps("regroup");
      FAIL() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 3"), HasSubstr("regroup")));
    }
  }
}

TEST(IterationState, AFailureIsForGood) {
  for (const bool learned : {false, true}) {
    IterationState state(0);
    if (learned) state.step_taken();
    EXPECT_NO_THROW(state.throw_if_failed());
    EXPECT_TRUE(state.fail(some_error()));
    EXPECT_FALSE(state.fail(std::make_exception_ptr(ConfigError("later"))));
    state.step_taken();
    state.pass_began(1);
    state.step_taken();
    EXPECT_EQ(state.now(), State::failed);
    EXPECT_FALSE(state.begins_pass(1));
    EXPECT_THROW(state.throw_if_failed(), TimeoutError);
    EXPECT_THROW(state.require_between_steps("regroup"), TimeoutError);
  }
}

// Two layers, of parameters 0 and 1, and of 2, which two passes use.
GradientArrivals after_the_first_iteration() {
  GradientArrivals arrivals(3);
  for (const std::size_t parameter : {2, 1, 0, 2}) {
    arrivals.arrived(parameter);
    arrivals.count(parameter, true);
  }
  arrivals.set_layers({0, 0, 1});
  arrivals.end_iteration();
  return arrivals;
}

TEST(GradientArrivals, CompleteALayerWithTheLastOfAllItsGradients) {
  GradientArrivals arrivals = after_the_first_iteration();
  EXPECT_EQ(arrivals.layers(), 2U);
  for (int iteration = 0; iteration < 2; ++iteration) {
    EXPECT_FALSE(arrivals.any());
    EXPECT_TRUE(arrivals.nothing_sent());
    EXPECT_TRUE(arrivals.all_deferred());
    EXPECT_EQ(arrivals.counted(2), GradientArrivals::Complete::nothing);
    EXPECT_TRUE(arrivals.nothing_sent());
    EXPECT_FALSE(arrivals.all_deferred());
    EXPECT_EQ(arrivals.counted(1), GradientArrivals::Complete::parameter);
    EXPECT_EQ(arrivals.counted(2), GradientArrivals::Complete::layer);
    EXPECT_TRUE(arrivals.sent(2));
    EXPECT_FALSE(arrivals.layer_sent(0));
    EXPECT_FALSE(arrivals.nothing_sent());
    EXPECT_EQ(arrivals.counted(0), GradientArrivals::Complete::layer);
    arrivals.end_iteration();
  }
  EXPECT_EQ(arrivals.expected(2), 2);
}

// A gradient that is not the one that was counted replaced one that was dropped.
TEST(GradientArrivals, BeginAnewWithADroppedGradient) {
  GradientArrivals arrivals(1);
  arrivals.count(0, false);
  arrivals.count(0, true);
  arrivals.count(0, false);
  arrivals.set_layers({0});
  arrivals.end_iteration();
  EXPECT_EQ(arrivals.expected(0), 1);
}

TEST(GradientArrivals, KeepTheLateOneUntilTheIterationEnds) {
  GradientArrivals arrivals = after_the_first_iteration();
  arrivals.refuse(1);
  EXPECT_EQ(arrivals.late(), std::optional<std::size_t>(1));
  arrivals.forget();
  EXPECT_FALSE(arrivals.late().has_value());
}

TEST(GradientArrivals, WereDroppedWhenAllThatArrivedAreGone) {
  GradientArrivals arrivals = after_the_first_iteration();
  const auto all_gone = [](std::size_t) { return true; };
  EXPECT_FALSE(arrivals.were_dropped(0, all_gone));  // nothing arrived
  arrivals.arrived(0);
  arrivals.arrived(1);
  EXPECT_TRUE(arrivals.were_dropped(2, all_gone));
  EXPECT_TRUE(arrivals.were_dropped(1, all_gone));
  EXPECT_FALSE(arrivals.were_dropped(2, [](std::size_t i) { return i != 0; }));  // one is there
  EXPECT_FALSE(arrivals.were_dropped(2, [](std::size_t i) { return i != 1; }));
  arrivals.forget();
  arrivals.arrived(0);  // the one that brings the news, and its layer was not sent: another pass adds to it
  EXPECT_FALSE(arrivals.were_dropped(0, all_gone));
}

TEST(GradientArrivals, AreDeferredAsOftenAsNoSyncLives) {
  GradientArrivals arrivals(1);
  arrivals.defer();
  arrivals.defer();
  arrivals.resume();
  EXPECT_TRUE(arrivals.deferred());
  arrivals.resume();
  EXPECT_FALSE(arrivals.deferred());
}

}  // namespace
}  // namespace dear::iteration_state_test
