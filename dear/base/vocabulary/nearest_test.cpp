#include "dear/base/vocabulary/nearest.h"

#include <gtest/gtest.h>

namespace dear::nearest_test {
namespace {

const std::vector<std::string_view> kNames{"serial", "wfbp", "dear", "dear-eager"};

TEST(Nearest, IsTheNameThatWasMeant) {
  EXPECT_EQ(nearest("dera", kNames), "dear");
  EXPECT_EQ(nearest("dear_eager", kNames), "dear-eager");
  EXPECT_EQ(nearest("wbfp", kNames), "wfbp");
}

TEST(Nearest, IsNoneWhereNothingIsAlike) {
  EXPECT_EQ(nearest("quantum", kNames), "");
  EXPECT_EQ(nearest("", kNames), "");
  EXPECT_EQ(nearest(std::string(100'000, 'd'), kNames), "");
  EXPECT_EQ(nearest("dear", {}), "");
}

TEST(DidYouMean, FitsIntoASentence) {
  EXPECT_EQ(did_you_mean("seral", kNames), ", did you mean serial?");
  EXPECT_EQ(did_you_mean("quantum", kNames, ":"), ":");
}

}  // namespace
}  // namespace dear::nearest_test
