#include "dear/platform/cluster/presets.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/cluster_file.h"

namespace dear::presets_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ClusterPresets, AreSoundAndNamedByTheirRanks) {
  std::set<std::string> names;
  for (const ClusterPreset& preset : clusters()) {
    const Cluster& cluster = preset.cluster;
    EXPECT_NO_THROW(validate(cluster));
    EXPECT_TRUE(names.insert(cluster.name).second) << cluster.name;
    EXPECT_FALSE(preset.summary.empty());
    EXPECT_THAT(cluster.name, EndsWith("-" + std::to_string(cluster.ranks())));
    EXPECT_EQ(find_cluster(cluster.name), cluster);
  }
}

TEST(ClusterPresets, OfThePaperHaveOneCardForFourRanks) {
  for (const std::string network : {"10gbe", "100gbib"}) {
    const Cluster cluster = find_cluster(network + "-64");
    ASSERT_EQ(cluster.dimensions.size(), 2U);
    EXPECT_EQ(cluster.dimensions[0].size, 4);
    EXPECT_EQ(cluster.dimensions[1].size, 16);
    EXPECT_EQ(cluster.dimensions[1].links, 1);
    EXPECT_EQ(cluster.dimensions[1].link, parse_network(network).link);
  }
}

TEST(ClusterPresets, GetSlowerOutwards) {
  for (const ClusterPreset& preset : clusters()) {
    double alpha = 0;
    double bytes_per_second = std::numeric_limits<double>::infinity();
    for (int i = 0; i < std::ssize(preset.cluster.dimensions); ++i) {
      const Dimension& dimension = preset.cluster.dimensions[static_cast<std::size_t>(i)];
      EXPECT_GE(dimension.link.alpha_seconds, alpha) << preset.cluster.name;
      EXPECT_LE(bytes_per_second_of_rank(preset.cluster, i), bytes_per_second) << preset.cluster.name;
      alpha = dimension.link.alpha_seconds;
      bytes_per_second = bytes_per_second_of_rank(preset.cluster, i);
    }
  }
}

TEST(ClusterPresets, OfThemisLieBesideEachOther) {
  const auto gbits = [](const std::string& name) {
    const Cluster cluster = find_cluster(name);
    std::vector<double> found;
    for (int i = 0; i < std::ssize(cluster.dimensions); ++i) {
      EXPECT_EQ(lanes_of(cluster)[static_cast<std::size_t>(i)], i) << name;
      found.push_back(std::round(bytes_per_second_of_rank(cluster, i) * 8 / 1e9));
    }
    return found;
  };
  EXPECT_THAT(gbits("themis-2d-sw-sw-1024"), ElementsAre(1200, 800));
  EXPECT_THAT(gbits("themis-3d-sw-sw-sw-homo-1024"), ElementsAre(800, 800, 800));
  EXPECT_THAT(gbits("themis-3d-sw-sw-sw-hetero-1024"), ElementsAre(1600, 800, 400));
  EXPECT_THAT(gbits("themis-3d-fc-ring-sw-1024"), ElementsAre(1400, 800, 400));
  EXPECT_THAT(gbits("themis-4d-ring-sw-sw-sw-1024"), ElementsAre(2000, 1600, 800, 400));
  EXPECT_THAT(gbits("themis-4d-ring-fc-ring-sw-1024"), ElementsAre(3000, 1400, 1200, 800));
}

TEST(FindCluster, TakesAPartOfAPreset) {
  EXPECT_EQ(find_cluster("10gbe-64", 16).ranks(), 16);
  EXPECT_EQ(find_cluster("h100-400gbit-131072", 8192).dimensions.size(), 3U);
  EXPECT_THAT([] { find_cluster("10gbe-64", 6); },
              ThrowsMessage<ConfigError>(HasSubstr("a multiple of 4 up to 64")));
}

TEST(FindCluster, TakesANetworkWithRanks) {
  for (const std::string text : {"10gbe", "bandwidth=1gbit,latency=50us"}) {
    EXPECT_EQ(find_cluster(text, 5), flat_cluster(parse_network(text), 5));
    EXPECT_THAT([&] { find_cluster(text); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("'" + text + "'"), HasSubstr("say how many"))));
  }
}

TEST(FindCluster, TakesAFile) {
  const std::string path = testing::TempDir() + "found_cluster.json";
  write_cluster(find_cluster("geo-1gbit-32"), path);
  EXPECT_EQ(find_cluster(path), find_cluster("geo-1gbit-32"));
  EXPECT_EQ(find_cluster(path, 16), find_cluster("geo-1gbit-32", 16));
  std::remove(path.c_str());
}

TEST(FindCluster, ListsWhatThereIs) {
  for (const std::optional<int> ranks : {std::optional<int>(), std::optional(4)}) {
    EXPECT_THAT(
        [&] { find_cluster("token-ring", ranks); },
        ThrowsMessage<ConfigError>(AllOf(HasSubstr("'token-ring'"), HasSubstr("1gbit, 10gbe, 100gbib"),
                                         HasSubstr("1gbit-4, 10gbe-64"))));
  }
}

}  // namespace
}  // namespace dear::presets_test
