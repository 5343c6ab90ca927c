#include "dear/platform/cluster/network.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::network_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Networks, PresetsAreFoundByName) {
  ASSERT_EQ(network_presets().size(), 3U);
  for (const NetworkPreset& preset : network_presets()) {
    const Network network = parse_network(preset.name);
    EXPECT_EQ(network.name, preset.name);
    EXPECT_EQ(network.link.alpha_seconds, preset.link.alpha_seconds);
    EXPECT_EQ(network.link.beta_seconds_per_byte, preset.link.beta_seconds_per_byte);
    EXPECT_FALSE(preset.summary.empty());
  }
}

TEST(Networks, PresetsHaveTheNumbersOfTheirSources) {
  EXPECT_DOUBLE_EQ(parse_network("1gbit").link.alpha_seconds, 50e-6);
  EXPECT_DOUBLE_EQ(parse_network("1gbit").link.beta_seconds_per_byte, 8e-9);
  EXPECT_DOUBLE_EQ(parse_network("100gbib").link.alpha_seconds, 6.4e-6);
  EXPECT_DOUBLE_EQ(parse_network("100gbib").link.beta_seconds_per_byte, 0.08e-9);
  const Link measured = parse_network("10gbe").link;
  // Among 64 ranks an all-reduce starts 2 * 63 messages and costs 2 * 63/64 beta a byte.
  EXPECT_NEAR(2 * 63 * measured.alpha_seconds, 7.04e-3, 0.02e-3);
  EXPECT_DOUBLE_EQ(2 * 63.0 / 64 * measured.beta_seconds_per_byte, 1.706e-9);
  EXPECT_NEAR(8 / measured.beta_seconds_per_byte, 9.2e9, 0.05e9);
}

TEST(Networks, AreDescribedByBandwidthAndLatencyInEitherOrder) {
  for (const char* text : {"bandwidth=1gbit,latency=50us", "latency=50us,bandwidth=1gbit"}) {
    const Network network = parse_network(text);
    EXPECT_EQ(network.name, text);
    EXPECT_DOUBLE_EQ(network.link.alpha_seconds, 50e-6);
    EXPECT_DOUBLE_EQ(network.link.beta_seconds_per_byte, 8e-9);
  }
  EXPECT_EQ(parse_network("bandwidth=100mbit,latency=0s").link.alpha_seconds, 0);
}

struct Fault {
  std::string text;
  std::string message;
};
class FaultyNetwork : public ::testing::TestWithParam<Fault> {};
TEST_P(FaultyNetwork, IsRefusedWithThePartAndThePresets) {
  const std::string& text = GetParam().text;
  EXPECT_THAT(
      [&] { parse_network(text); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("network '" + text + "'"), HasSubstr(GetParam().message),
                                       HasSubstr("1gbit, 10gbe, 100gbib"))));
}
INSTANTIATE_TEST_SUITE_P(
    Texts, FaultyNetwork,
    ::testing::Values(Fault{"", "no such preset"}, Fault{"2gbit", "bandwidth=2gbit,latency="},
                      Fault{"1GBIT", "no such preset"}, Fault{"bandwidth=1gbit", "latency is missing"},
                      Fault{"latency=5us", "bandwidth is missing"},
                      Fault{"bandwidth=1gbit,latency=5us,", "'' is not of the form key=value"},
                      Fault{"bandwidth=1gbit,5us", "'5us' is not of the form key=value"},
                      Fault{"bandwidth=1gbit,latency=5us,loss=1", "unknown key 'loss'"},
                      Fault{"bandwidth=1gbit, latency=5us", "unknown key ' latency'"},
                      Fault{"bandwidth=1gbit,bandwidth=2gbit", "bandwidth is given twice"},
                      Fault{"bandwidth=1MiB,latency=5us", "bandwidth: '1MiB' cannot be used"},
                      Fault{"bandwidth=0gbit,latency=5us", "bandwidth: '0gbit' cannot be used"},
                      Fault{"bandwidth=1gbit,latency=", "latency: '' cannot be used"}));

}  // namespace
}  // namespace dear::network_test
