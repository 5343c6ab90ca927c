#include "studies/report/by_bandwidth.h"

#include "studies/report/machine.h"
#include <limits>

#include <gtest/gtest.h>

namespace dear::studies::by_bandwidth_test {
namespace {

// 1 Mi elements among 4 ranks: six rounds, and 1.5 times 4 MiB from each.
TEST(Line, OfDenseGradientsIsThatOfARing) {
  const Line dense = dense_line({.elements = 1 << 20, .alpha_seconds = 1e-3}, 4);
  EXPECT_DOUBLE_EQ(dense.start, 6e-3);
  EXPECT_DOUBLE_EQ(dense.bytes, 1.5 * (4 << 20));
  EXPECT_DOUBLE_EQ(dense.seconds(1e6), 6e-3 + 1.5e-6 * (4 << 20));
}

TEST(Line, GoesThroughWhatIsLinearInBeta) {
  const Line line = line_through(
      2, 10, [](const Link& link) { return 3 * link.alpha_seconds + 5 * link.beta_seconds_per_byte; });
  EXPECT_DOUBLE_EQ(line.start, 16);
  EXPECT_DOUBLE_EQ(line.bytes, 5);
}

TEST(Line, LosesWhereTheBytesSavedAreNotWorthTheTime) {
  const Line dense{.start = 1, .bytes = 20};
  EXPECT_DOUBLE_EQ(loses_from({.start = 3, .bytes = 10}, dense), 5);
  EXPECT_EQ(loses_from({.start = 2, .bytes = 20}, dense), 0);
  EXPECT_EQ(loses_from({.start = 1, .bytes = 10}, dense), std::numeric_limits<double>::infinity());
  EXPECT_EQ(bandwidth_text(1.25e9), "10 Gb/s");
  EXPECT_EQ(bandwidth_text(0), "everywhere");
  EXPECT_EQ(bandwidth_text(std::numeric_limits<double>::infinity()), "nowhere");
  EXPECT_EQ(milliseconds(0.0123456), "12.35");
}

TEST(Machine, HasANameAndALoad) {
  EXPECT_NE(this_machine().find(" cores"), std::string::npos);
  EXPECT_GE(load_of_this_machine(), 0);
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 3);
}

}  // namespace
}  // namespace dear::studies::by_bandwidth_test
