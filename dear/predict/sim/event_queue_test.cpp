#include "dear/predict/sim/event_queue.h"

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::sim::event_queue_test {
namespace {

TEST(EventQueue, EndsComeInOrderOfTime) {
  EventQueue events;
  events.end_after(3, {0, 0});
  events.end_after(1, {1, 0});
  EXPECT_EQ(events.now_seconds(), 0);
  EXPECT_EQ(events.next().which, (Instance{1, 0}));
  EXPECT_EQ(events.now_seconds(), 1);
  events.end_after(1, {2, 0});  // from now
  const conductor::Completion second = events.next();
  EXPECT_EQ(second.which, (Instance{2, 0}));
  EXPECT_EQ(second.at_seconds, 2);
  EXPECT_EQ(events.next().at_seconds, 3);
}

TEST(EventQueue, EndsAtOneInstantComeAsAdded) {
  EventQueue events;
  for (StepId step = 0; step < 20; ++step) events.end_after(1, {step, 0});
  for (StepId step = 0; step < 20; ++step) EXPECT_EQ(events.next().which.step, step);
}

TEST(EventQueue, NothingToWaitForIsAnError) {
  EventQueue events;
  EXPECT_THROW(events.next(), Error);
}

}  // namespace
}  // namespace dear::sim::event_queue_test
