#include "dear/base/launch/failure_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::launch::failure_lines_test {
namespace {

using ::testing::ElementsAre;

TEST(FailureLines, AreThoseOfRanksAlone) {
  FailureLines lines("dear train");
  for (const char* const other : {"", "dear train", "warning: rank 1: late"})
    EXPECT_FALSE(lines.take(other)) << other;
  EXPECT_TRUE(lines.take("dear train: rank 12: no memory"));
  EXPECT_TRUE(lines.take("dear train: no memory"));
  EXPECT_THAT(lines.said_once(), ElementsAre("dear train: rank 12: no memory"));
}

TEST(FailureLines, SayWhatAllRanksSayOnce) {
  FailureLines lines("dear train");
  for (const char* const rank : {"1", "0", "2"})
    lines.take(std::string("dear train: rank ") + rank + ": no memory");
  EXPECT_THAT(lines.said_once(), ElementsAre("dear train: rank 1: no memory"));
}

TEST(FailureLines, LeaveOutWhoRepeatsAPeer) {
  FailureLines lines("dear train");
  lines.take("dear train: rank 0: rank 2 has failed: disk full");
  lines.take("dear train: rank 1: the grid has no rank 7");
  lines.take("dear train: rank 2: disk full");
  EXPECT_THAT(lines.said_once(),
              ElementsAre("dear train: rank 1: the grid has no rank 7", "dear train: rank 2: disk full"));
}

}  // namespace
}  // namespace dear::launch::failure_lines_test
