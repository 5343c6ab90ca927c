#include "dear/platform/cluster/calibration.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/presets.h"

namespace dear::calibration_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Nodes of 2 at 8 s a byte before, and 4 of them behind cards of 2 s a byte.
Cluster two_by_four() {
  return {
      .name = "made up",
      .dimensions = {{.name = "node", .size = 2, .link = {.alpha_seconds = 1, .beta_seconds_per_byte = 8}},
                     {.name = "rail", .size = 4, .link = {.alpha_seconds = 5, .beta_seconds_per_byte = 2}}}};
}

TEST(Calibrated, ReplacesWhatWasFittedAndNothingElse) {
  const Cluster cluster = calibrated(
      two_by_four(),
      {.launch_seconds = 3, .hold_seconds = 4, .node_bytes_per_second = 0.25, .node_slowdown = 1.5});
  EXPECT_EQ(cluster.software, (Software{.launch_seconds = 3, .hold_seconds = 4}));
  EXPECT_EQ(cluster.dimensions[0].link, (Link{.alpha_seconds = 1, .beta_seconds_per_byte = 4}));
  EXPECT_EQ(cluster.dimensions[1], two_by_four().dimensions[1]);
  // Inside a node a byte takes 4 s, and 6 s beside computation: longer than the 2 s between nodes.
  EXPECT_EQ(cluster.interference, (Interference{.communication = 1.5, .computation = 1}));
}

TEST(Calibrated, SlowsCommunicationAsFarAsNodesAreTheSlowestPart) {
  const auto communication = [](double bytes_per_second) {
    return calibrated(two_by_four(), {.node_bytes_per_second = bytes_per_second, .node_slowdown = 3})
        .interference.communication;
  };
  EXPECT_DOUBLE_EQ(communication(1), 1.5);  // 1 s and 3 s a byte, between nodes 2 s
  EXPECT_DOUBLE_EQ(communication(2), 1);    // 0.5 s and 1.5 s
}

TEST(Calibrated, RefusesNodesThatCannotBe) {
  for (const Calibration& wrong :
       {Calibration{.node_bytes_per_second = 0}, Calibration{.node_bytes_per_second = NAN},
        Calibration{.node_bytes_per_second = 1, .node_slowdown = 0.5}})
    EXPECT_THAT([&] { calibrated(two_by_four(), wrong); }, ThrowsMessage<ConfigError>(HasSubstr("slowdown")));
  EXPECT_THAT([] { calibrated(two_by_four(), {.launch_seconds = -1, .node_bytes_per_second = 1}); },
              ThrowsMessage<ConfigError>(HasSubstr("launch")));
}

TEST(Calibrated, PresetsAreThePapersClusters) {
  for (const char* const name : {"10gbe-64", "100gbib-64"}) {
    Cluster expected = calibrated(find_cluster(name), kRtx2080Ti);
    expected.name = std::string("calibrated-") + name;
    if (name == std::string_view("10gbe-64")) expected.software.buffer_seconds = kBufferSecondsOnEthernet;
    EXPECT_EQ(find_cluster(expected.name), expected);
  }
}

}  // namespace
}  // namespace dear::calibration_test
