#include "dear/cluster/presets.h"

#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"
#include "dear/cluster/cluster_file.h"

namespace dear::presets_test {
namespace {

using ::testing::AllOf;
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
    double beta_of_a_rank = 0;  // all ranks at once
    int inside = 1;
    for (const Dimension& dimension : preset.cluster.dimensions) {
      const double beta =
          dimension.link.beta_seconds_per_byte * inside / dimension.links * dimension.oversubscription;
      EXPECT_GT(dimension.link.alpha_seconds, alpha) << preset.cluster.name;
      EXPECT_GT(beta, beta_of_a_rank) << preset.cluster.name;
      alpha = dimension.link.alpha_seconds;
      beta_of_a_rank = beta;
      inside *= dimension.size;
    }
  }
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
