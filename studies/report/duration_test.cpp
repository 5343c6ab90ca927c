#include "studies/report/duration.h"

#include <gtest/gtest.h>

namespace dear::studies::duration_test {
namespace {

TEST(Duration, GrowsWithTheTasks) {
  const Duration duration{.once_seconds = 20, .task_seconds = 120};
  EXPECT_EQ(duration.text(0), "seconds");
  EXPECT_EQ(duration.text(1), "about 2 minutes on 2 cores");
  EXPECT_EQ(duration.text(10), "about 20 minutes on 2 cores");
  EXPECT_EQ(duration.text(1000), "about 33 hours on 2 cores");
  EXPECT_EQ((Duration{.once_seconds = 70}).text(5), "about 1 minute on 2 cores");
}

}  // namespace
}  // namespace dear::studies::duration_test
