#include "dear/platform/cluster/pair_cluster.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/sites.h"

namespace dear::pair_cluster_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

PairCluster make() {
  return {.name = "two rooms",
          .devices = {{.name = "a", .flops_per_second = 1e13, .memory_bytes = 1000},
                      {.name = "b", .flops_per_second = 2e12, .memory_bytes = 500}},
          .bytes_per_second = {{0, 1e9}, {5e8, 0}},
          .latency_seconds = {{0, 0.01}, {0.02, 0}}};
}

TEST(PairCluster, HasALinkForEachDirection) {
  const PairCluster cluster = make();
  validate(cluster);
  EXPECT_DOUBLE_EQ(cluster.transfer_seconds(0, 1, 1e6), 1e-3);
  EXPECT_DOUBLE_EQ(cluster.transfer_seconds(1, 0, 1e6), 2e-3);
  EXPECT_EQ(cluster.transfer_seconds(1, 1, 1e6), 0);
}

TEST(PairCluster, IsWrittenAndReadAsItIs) {
  EXPECT_EQ(parse_pair_cluster(to_json(make()), "x"), make());
  const std::string path = testing::TempDir() + "pair_cluster.json";
  const PairCluster drawn = random_sites({.devices = 7, .sites = 3, .seed = 5});
  write_pair_cluster(drawn, path);
  EXPECT_EQ(read_pair_cluster(path), drawn);
  EXPECT_EQ(find_pair_cluster(path), drawn);
  std::filesystem::remove(path);
  PairCluster shares = make();
  shares.devices[1].top_k_elements_per_second = 1e8;
  shares.shared_wires = {{.bytes_per_second = 1e6, .links = {{0, 1}, {1, 0}}},
                         {.bytes_per_second = 2e6, .links = {{1, 0}}}};
  EXPECT_EQ(parse_pair_cluster(to_json(shares), "x"), shares);
  PairCluster named = make();
  named.name = "\xff";
  EXPECT_THAT([&] { to_json(named); }, ThrowsMessage<ConfigError>(HasSubstr("UTF-8")));
}

TEST(PairCluster, IsRefusedWithOneSentence) {
  const auto refused = [](auto change, const std::string& message) {
    PairCluster cluster = make();
    change(cluster);
    EXPECT_THAT([&] { validate(cluster); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused([](PairCluster& c) { c.devices.clear(); }, "needs a device");
  refused([](PairCluster& c) { c.devices[1].name = "a"; }, "two devices are named 'a'");
  refused([](PairCluster& c) { c.devices[1].name = ""; }, "has no name");
  for (const double speed : {0.0, 0.5, -1.0, kNan, 1e300, HUGE_VAL})
    refused([&](PairCluster& c) { c.devices[0].flops_per_second = speed; }, "device 'a' computes");
  refused([](PairCluster& c) { c.devices[0].memory_bytes = 0; }, "device 'a' has 0 bytes of memory");
  refused([](PairCluster& c) { c.bytes_per_second.pop_back(); }, "bytes_per_second has 1 rows for 2");
  refused([](PairCluster& c) { c.latency_seconds[1].pop_back(); },
          "the row of latency_seconds of device 'b' has 1 entries");
  for (const double rate : {0.0, -1.0, kNan, HUGE_VAL})
    refused([&](PairCluster& c) { c.bytes_per_second[1][0] = rate; }, "the link from 'b' to 'a' carries");
  for (const double latency : {-1.0, kNan, HUGE_VAL})
    refused([&](PairCluster& c) { c.latency_seconds[0][1] = latency; },
            "the link from 'a' to 'b' has a latency");
  refused([](PairCluster& c) { c.bytes_per_second[0][0] = 1; }, "nothing travels");
  refused([](PairCluster& c) { c.latency_seconds[0][0] = 1; }, "nothing travels");
  for (const double speed : {0.5, -1.0, kNan, HUGE_VAL})
    refused([&](PairCluster& c) { c.devices[0].top_k_elements_per_second = speed; },
            "device 'a' finds the largest of");
  const auto refused_wire = [&](const SharedWire& wire, const std::string& message) {
    refused([&](PairCluster& c) { c.shared_wires = {wire}; }, message);
  };
  refused_wire({.bytes_per_second = 0, .links = {{0, 1}}}, "a shared wire carries 0 bytes a second");
  refused_wire({.bytes_per_second = 1e6, .links = {}}, "a shared wire has no links");
  refused_wire({.bytes_per_second = 1e6, .links = {{0, 2}}}, "a link from device 0 to 2, and there are 2");
  refused_wire({.bytes_per_second = 1e6, .links = {{1, 1}}}, "give links of two of them");
  refused_wire({.bytes_per_second = 1e6, .links = {{0, 1}, {0, 1}}}, "from device 0 to 1 twice");
}

TEST(PairCluster, FilesAreRefusedWithThePlace) {
  const auto refused = [](const std::string& replaced, const std::string& by, const std::string& message) {
    std::string text = to_json(make());
    const std::size_t at = text.find(replaced);
    ASSERT_NE(at, std::string::npos) << replaced;
    text.replace(at, replaced.size(), by);
    EXPECT_THAT([&] { parse_pair_cluster(text, "p.json"); },
                ThrowsMessage<ConfigError>(AllOf(StartsWith("p.json: "), HasSubstr(message))));
  };
  refused("500000000.0", "null", "bytes_per_second[1][0]: expected a number, found null");
  refused("500000000.0", "0", "carries 0 bytes a second");
  refused("500000000.0,null", "500000000.0", "has 1 entries for 2 devices");
  refused("[null,1000000000.0]", "[0,1000000000.0]", "write null on the diagonal");
  refused("\"memory_bytes\":1000", "\"memory_bytes\":\"x\"", "devices[0].memory_bytes: expected an integer");
  refused("\"latency_seconds\"", "\"latency\"", "missing");
}

TEST(Sites, PresetsAreValid) {
  std::set<std::string> names;
  for (const PairClusterPreset& preset : pair_clusters()) {
    validate(preset.cluster);
    names.insert(preset.cluster.name);
    EXPECT_EQ(find_pair_cluster(preset.cluster.name), preset.cluster);
  }
  EXPECT_EQ(names, (std::set<std::string>{"fusionllm-48", "three-sites", "two-sites"}));
  EXPECT_EQ(find_pair_cluster("two-sites").devices.size(), 8U);
  EXPECT_THAT([] { find_pair_cluster("three-site"); },
              ThrowsMessage<ConfigError>(HasSubstr("did you mean three-sites?")));
}

TEST(Sites, SpanTheRangeOfThePaper) {
  const PairCluster cluster = find_pair_cluster("fusionllm-48");
  ASSERT_EQ(cluster.devices.size(), 48U);
  double least = HUGE_VAL, most = 0;
  int inside = 0;
  for (std::size_t i = 0; i < 48; ++i) {
    for (std::size_t j = 0; j < 48; ++j) {
      if (i == j) continue;
      const double bits = 8 * cluster.bytes_per_second[i][j];
      least = std::min(least, bits);
      most = std::max(most, bits);
      const auto site_of = [&](std::size_t device) { return cluster.devices[device].name.substr(0, 5); };
      const bool together = site_of(i) == site_of(j);
      inside += together ? 1 : 0;
      EXPECT_EQ(together, bits > 5e8);
    }
  }
  EXPECT_GE(least, 8e6 * (1 - 1e-12));
  EXPECT_LT(least, 10e6);
  EXPECT_LE(most, 10e9 * (1 + 1e-12));
  EXPECT_GT(most, 8e9);
  EXPECT_EQ(inside, 48 * 7);
  EXPECT_EQ(random_sites({.seed = 3}), random_sites({.seed = 3}));
  EXPECT_NE(random_sites({.seed = 3}).bytes_per_second, random_sites({.seed = 4}).bytes_per_second);
  EXPECT_EQ(random_sites({.devices = 1, .sites = 1}).devices.size(), 1U);
}

TEST(Sites, AreRefusedWithOneSentence) {
  const auto refused = [](const SiteOptions& options, const std::string& message) {
    EXPECT_THAT([&] { random_sites(options); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused({.devices = 2, .sites = 3}, "2 devices cannot lie in 3 sites");
  refused({.sites = 0}, "0 sites");
  refused({.inside_bits_per_second = {2, 1}}, "the bandwidth inside a site from 2 to 1 is no range");
  refused({.between_bits_per_second = {0, 1}}, "the bandwidth between sites");
  refused({.between_latency_seconds = {1, kNan}}, "the latency between sites");
  refused({.flops_per_second = {}}, "a speed and a memory");
}

TEST(PairCluster, APartHasTheLinksBetweenItsDevices) {
  PairCluster whole{.name = "whole"};
  for (int from = 0; from < 4; ++from) {
    whole.devices.push_back(
        {.name = fmt::format("d{}", from), .flops_per_second = 1e9 + from, .memory_bytes = 1 << 20});
    for (auto* const matrix : {&whole.bytes_per_second, &whole.latency_seconds}) matrix->emplace_back();
    for (int to = 0; to < 4; ++to) {
      whole.bytes_per_second.back().push_back(from == to ? 0 : 1000 + 10 * from + to);
      whole.latency_seconds.back().push_back(from == to ? 0 : 0.1 * (10 * from + to));
    }
  }
  whole.shared_wires = {{.bytes_per_second = 500, .links = {{0, 2}, {1, 2}, {2, 0}}},
                        {.bytes_per_second = 600, .links = {{1, 3}}}};
  validate(whole);
  const PairCluster part = part_of(whole, {2, 0});
  validate(part);
  EXPECT_EQ(part.devices[0], whole.devices[2]);
  EXPECT_EQ(part.bytes_per_second, (PairCluster::Matrix{{0, 1020}, {1002, 0}}));
  EXPECT_EQ(part.latency_seconds[0][1], whole.latency_seconds[2][0]);
  EXPECT_EQ(part.shared_wires,
            (std::vector<SharedWire>{{.bytes_per_second = 500, .links = {{1, 0}, {0, 1}}}}));
}

}  // namespace
}  // namespace dear::pair_cluster_test
