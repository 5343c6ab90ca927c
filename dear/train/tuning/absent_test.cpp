#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/tuning/tuned.h"

namespace dear::tuning::absent_test {
namespace {

TEST(WithoutTuning, WhoNamesNoBucketsIsTold) {
  EXPECT_THROW(DataParallelOptions{}, ConfigError);
  EXPECT_THROW(tuned({.start = Fusion::parse("all")}), ConfigError);
  EXPECT_NO_THROW((DataParallelOptions{.buckets = given()}));
  EXPECT_NO_THROW((DataParallelOptions{.buckets = planned()}));
}

}  // namespace
}  // namespace dear::tuning::absent_test
