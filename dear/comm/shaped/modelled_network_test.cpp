#include "dear/comm/shaped/modelled_network.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/os/testing/ranks.h"
#include "dear/platform/cluster/sites.h"

namespace dear::modelled_network_test {
namespace {

using os::testing::report_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string temporary(const std::string& name) {
  return (std::filesystem::path(::testing::TempDir()) / ("modelled-network-" + name)).string();
}

TEST(ModelledNetwork, IsAFlatOneOrOneOfPairs) {
  EXPECT_EQ(std::get<Network>(parse_modelled_network("1gbit")).name, "1gbit");
  const PairCluster preset = find_pair_cluster("two-sites");
  EXPECT_EQ(std::get<PairCluster>(parse_modelled_network("two-sites")), preset);
  const std::string path = temporary("pairs.json");
  write_pair_cluster(preset, path);
  EXPECT_EQ(std::get<PairCluster>(parse_modelled_network(path)), preset);
  EXPECT_EQ(name_of(parse_modelled_network(path)), "two-sites");
}

TEST(ModelledNetwork, RefusesWhatIsNeither) {
  EXPECT_THAT(report_of([] { parse_modelled_network("1gbti"); }),
              AllOf(StartsWith("ConfigError: network '1gbti'"), HasSubstr("1gbit")));
  const std::string path = temporary("broken.json");
  os::write_file_atomically(path, R"({"format": "dear-pair-cluster", "version": 1})");
  EXPECT_THAT(report_of([&] { parse_modelled_network(path); }),
              AllOf(StartsWith("ConfigError: "), HasSubstr(path)));
  os::write_file_atomically(path, "{");
  EXPECT_THAT(report_of([&] { parse_modelled_network(path); }),
              AllOf(StartsWith("ConfigError: "), HasSubstr(path)));
}

TEST(ModelledNetwork, CountsRanks) {
  const ModelledNetwork pairs = find_pair_cluster("two-sites");
  EXPECT_EQ(report_of([&] { require_ranks(pairs, 8); }), "ok");
  EXPECT_EQ(report_of([] { require_ranks(parse_modelled_network("1gbit"), 3); }), "ok");
  EXPECT_THAT(report_of([&] { require_ranks(pairs, 4); }),
              AllOf(HasSubstr("'two-sites'"), HasSubstr("8 devices"), HasSubstr("4 ranks")));
}

}  // namespace
}  // namespace dear::modelled_network_test
