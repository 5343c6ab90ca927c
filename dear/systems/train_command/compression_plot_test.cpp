#include "dear/systems/train_command/compression_plot.h"

#include <limits>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::train_command::compression_plot_test {
namespace {

using ::testing::HasSubstr;

TrainResult run(const std::string& compression, double bytes, const std::vector<double>& losses) {
  TrainResult result;
  result.sent = {.compression = compression, .bytes = bytes, .dense_bytes = 4e6};
  result.losses = losses;
  result.step_seconds.assign(losses.size(), 0.5);
  return result;
}

// The points of each curve, in the order of the picture, then those of the legend.
std::vector<std::vector<std::pair<double, double>>> curves_of(const std::string& picture) {
  std::vector<std::vector<std::pair<double, double>>> curves;
  const std::regex curve("<polyline points=\"([^\"]*)\""), point("([0-9.]+),([0-9.]+)");
  for (std::sregex_iterator one(picture.begin(), picture.end(), curve), end; one != end; ++one) {
    const std::string points = (*one)[1];
    curves.emplace_back();
    for (std::sregex_iterator at(points.begin(), points.end(), point); at != end; ++at)
      curves.back().emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  }
  return curves;
}

// The loss falls from 4 to 2: from the top of the panel to its bottom, 300 points lower. One run sends a
// tenth.
TEST(CompressionPlot, DrawsLossAgainstBytesAndSeconds) {
  const std::string picture =
      plot_of_compressions({run("dense", 4e6, {4, 3, 2}), run("top-k:0.1", 4e5, {4, 3, 2})});
  EXPECT_THAT(picture, HasSubstr("top-k:0.1"));
  const auto curves = curves_of(picture);
  ASSERT_EQ(curves.size(), 6U);  // by bytes, by seconds, the legend
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& curve = curves[i];
    ASSERT_EQ(curve.size(), 3U);
    EXPECT_NEAR(curve[2].second - curve[0].second, 300, 0.2);
    EXPECT_NEAR(curve[1].second - curve[0].second, 150, 0.2);
  }
  EXPECT_NEAR(curves[0][2].first - curves[0][0].first, 10 * (curves[1][2].first - curves[1][0].first), 1);
  EXPECT_EQ(curves[2], curves[3]);
}

TEST(CompressionPlot, TakesLossesThatAreNoNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(curves_of(plot_of_compressions({run("fp16", 1, {2, nan})})).size(), 3U);
  EXPECT_THROW((void)plot_of_compressions({run("fp16", 1, {nan})}), ConfigError);
  EXPECT_THROW((void)plot_of_compressions({}), ConfigError);
}

}  // namespace
}  // namespace dear::train_command::compression_plot_test
