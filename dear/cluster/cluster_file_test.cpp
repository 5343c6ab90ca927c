#include "dear/cluster/cluster_file.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"

namespace dear {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

const FlatCluster kMeasured{
    .name = "shm, 2 ranks",
    .ranks = 2,
    .link = {.alpha_seconds = 0.1 + 0.2, .beta_seconds_per_byte = 1e-10 / 3},
    .fit = FitRecord{.backend = "shm",
                     .operation = "all-reduce",
                     .dtype = "fp32",
                     .model = "ring",
                     .rms_residual = 1.0 / 3,
                     .worst_residual = 0.5,
                     .samples = {{.bytes = 4, .seconds = 1e-6, .modelled_seconds = 2e-6},
                                 {.bytes = 1 << 20, .seconds = 1e-3, .modelled_seconds = 1.1e-3}}}};

TEST(ClusterFile, WhatIsWrittenIsRead) {
  const std::string path = testing::TempDir() + "round_trip_cluster.json";
  write_cluster(kMeasured, path);
  const FlatCluster read = read_cluster(path);
  EXPECT_EQ(read.name, kMeasured.name);
  EXPECT_EQ(read.ranks, kMeasured.ranks);
  EXPECT_EQ(read.link.alpha_seconds, kMeasured.link.alpha_seconds);
  EXPECT_EQ(read.link.beta_seconds_per_byte, kMeasured.link.beta_seconds_per_byte);
  EXPECT_EQ(read.fit, kMeasured.fit);
  EXPECT_EQ(to_json(read), to_json(kMeasured));
  std::filesystem::remove(path);
}

constexpr const char* kByHand = R"({"format": "dear-cluster", "version": 1, "name": "by hand", "ranks": 16,
  "link": {"alpha_seconds": 5e-05, "beta_seconds_per_byte": 8e-09}})";

TEST(ClusterFile, MayBeWrittenByHandWithoutAFit) {
  const FlatCluster cluster = parse_cluster(kByHand, "x");
  EXPECT_EQ(cluster.ranks, 16);
  EXPECT_EQ(cluster.link.alpha_seconds, 5e-5);
  EXPECT_FALSE(cluster.fit);
}

TEST(ClusterFile, IsANetwork) {
  const std::string folder = testing::TempDir();
  // Also where the name of the file looks like a description.
  for (const std::string name : {"cluster.json", "a=b", "plain"}) {
    const std::string path = folder + name;
    std::ofstream(path) << kByHand;
    const Network network = parse_network(path);
    EXPECT_EQ(network.name, "by hand");
    EXPECT_EQ(network.link.beta_seconds_per_byte, 8e-9);
    std::filesystem::remove(path);
  }
  EXPECT_THAT([&] { parse_network(folder + "none.json"); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("none.json"), HasSubstr("No such file"))));
  EXPECT_THAT([&] { parse_network(folder); },
              ThrowsMessage<ConfigError>(HasSubstr("there is no such preset")));
}

TEST(ClusterFile, NamesThatAreNotUtf8AreRefused) {
  EXPECT_THAT([] { to_json(FlatCluster{.name = "\xff"}); }, ThrowsMessage<ConfigError>(HasSubstr("UTF-8")));
}

struct Fault {
  std::string replaced;
  std::string by;
  std::string message;
};
class FaultyClusterFile : public ::testing::TestWithParam<Fault> {};
TEST_P(FaultyClusterFile, IsRefusedWithThePlaceAndTheRemedy) {
  std::string text = to_json(kMeasured);
  const std::size_t at = text.find(GetParam().replaced);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, GetParam().replaced.size(), GetParam().by);
  EXPECT_THAT([&] { parse_cluster(text, "c.json"); },
              ThrowsMessage<ConfigError>(AllOf(StartsWith("c.json: "), HasSubstr(GetParam().message))));
}
INSTANTIATE_TEST_SUITE_P(
    Files, FaultyClusterFile,
    ::testing::Values(
        Fault{"\"version\": 1,", "\"version\": 1,,", "line 3"},
        Fault{"dear-cluster", "dear-workload", "not a cluster file"},
        Fault{"\"version\": 1,", "", "version: missing: add \"version\": 1"},
        Fault{"\"version\": 1", "\"version\": 2", "version: found 2, but this build reads version 1"},
        Fault{"\"version\": 1", "\"version\": \"1\"", "version: expected an integer, found a string"},
        Fault{"\"ranks\": 2,", "", "ranks: missing: add it"},
        Fault{"\"ranks\": 2", "\"ranks\": 0", "ranks: expected a whole number from 1 to 1048576, found 0"},
        Fault{"\"ranks\": 2", "\"ranks\": 1e300", "ranks: expected a whole number"},
        Fault{"\"ranks\": 2", "\"ranks\": 18446744073709551615", "ranks: expected a whole number"},
        Fault{"\"ranks\": 2", "\"ranks\": 2, \"racks\": 1", "racks: unknown: expected only format, "},
        Fault{"\"shm, 2 ranks\"", "7", "name: expected a string, found 7"},
        Fault{"\"alpha_seconds\": 0.3", "\"alpha_seconds\": -0.3",
              "link.alpha_seconds: expected a number, 0 or more, found -0.3"},
        Fault{"\"beta_seconds_per_byte\"", "\"beta\"", "link.beta_seconds_per_byte: missing"},
        Fault{"\"bytes\": 1048576", "\"bytes\": \"1MiB\"", "fit.samples[1].bytes: expected a whole number"},
        Fault{"\"model\": \"ring\"", "\"model\": null", "fit.model: expected a string, found null"}));

TEST(FaultyClusterFile, EndsOrIsNoObject) {
  for (const char* text : {"", "[]", "{", "null", "{\"format\": 1}"}) {
    EXPECT_THAT([&] { parse_cluster(text, "c.json"); }, ThrowsMessage<ConfigError>(StartsWith("c.json: ")));
  }
}

}  // namespace
}  // namespace dear
