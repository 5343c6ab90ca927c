#include "dear/comm/mpi/channels/backoff.h"

#include <gtest/gtest.h>

namespace dear::channels::backoff_test {
namespace {

using namespace std::chrono_literals;

UsualWait after(std::chrono::nanoseconds waited, int times) {
  UsualWait usual;
  for (int i = 0; i < times; ++i) usual.learn(waited);
  return usual;
}

TEST(UsualWait, IsNothingAtFirstAndComesToWhatWaitsTake) {
  EXPECT_EQ(UsualWait().time(), 0ns);
  EXPECT_GT(after(2ms, 200).time(), 1900us);
  EXPECT_LE(after(2ms, 200).time(), 2ms);
}

// A peer that is late says nothing of how long messages take; one that is early does.
TEST(UsualWait, BelievesAShortWaitSoonerThanALongOne) {
  UsualWait longer = after(1ms, 300), shorter = longer;
  const auto before = longer.time();
  longer.learn(60s);
  EXPECT_LE(longer.time(), before + before / 8);
  shorter.learn(0ns);
  EXPECT_LE(shorter.time(), before * 3 / 4 + 1ns);
  EXPECT_GE(shorter.time(), 0ns);
}

TEST(UsualWait, IsNeverBeyondTheLongest) {
  UsualWait usual;
  for (int i = 0; i < 1000; ++i) {
    usual.learn(i % 3 == 0 ? 900us : 300us);
    EXPECT_LE(usual.time(), 900us);
  }
  EXPECT_LT(usual.time(), 600us);  // nearer to the shorter ones
}

}  // namespace
}  // namespace dear::channels::backoff_test
