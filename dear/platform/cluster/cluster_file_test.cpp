#include "dear/platform/cluster/cluster_file.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/presets.h"

namespace dear::cluster_file_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

const Cluster kMeasured{
    .name = "shm, 2 nodes",
    .dimensions = {{.name = "node",
                    .size = 2,
                    .wiring = Wiring::full_mesh,
                    .link = {.alpha_seconds = 0.1 + 0.2, .beta_seconds_per_byte = 1e-10 / 3}},
                   {.name = "rail",
                    .size = 2,
                    .link = {.alpha_seconds = 1, .beta_seconds_per_byte = 2},
                    .links = 2,
                    .oversubscription = 1.5,
                    .beside = true}},
    .device = "rtx2080ti",
    .stragglers = {{.rank = 3, .slowdown = 1.25}},
    .interference = {.communication = 1.375, .computation = 1.0625},
    .software = {.launch_seconds = 0.0078125, .hold_seconds = 0.25, .buffer_seconds = 0.125},
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
  const Cluster read = read_cluster(path);
  EXPECT_EQ(read, kMeasured);
  EXPECT_EQ(to_json(read), to_json(kMeasured));
  std::filesystem::remove(path);
}

TEST(ClusterFile, EveryPresetIsReadAsItWasWritten) {
  for (const ClusterPreset& preset : clusters()) {
    EXPECT_EQ(parse_cluster(to_json(preset.cluster), "x"), preset.cluster);
  }
}

TEST(ClusterFile, WrittenByHandSaysOnlyWhatIsSpecial) {
  const Cluster cluster = parse_cluster(
      R"({"format": "dear-cluster", "version": 2, "name": "x", "dimensions": [
        {"name": "node", "size": 8, "link": {"alpha_seconds": 1, "beta_seconds_per_byte": 2}}]})",
      "x");
  const Cluster expected{
      .name = "x",
      .dimensions = {{.name = "node", .size = 8, .link = {.alpha_seconds = 1, .beta_seconds_per_byte = 2}}}};
  EXPECT_EQ(cluster, expected);
}

TEST(ClusterFile, GivesEachRankALinkWhereADimensionLiesBesideOthers) {
  const auto links = [](const std::string& more) {
    const std::string link = R"("link": {"alpha_seconds": 1, "beta_seconds_per_byte": 2})";
    return parse_cluster(R"({"format": "dear-cluster", "version": 2, "name": "x", "dimensions": [
               {"name": "node", "size": 8, )" +
                             link + R"(}, {"name": "rail", "size": 2, )" + link + more + "}]}",
                         "x")
        .dimensions[1]
        .links;
  };
  EXPECT_EQ(links(""), 1);
  EXPECT_EQ(links(R"(, "beside": false)"), 1);
  EXPECT_EQ(links(R"(, "beside": true)"), 8);
  EXPECT_EQ(links(R"(, "beside": true, "links": 16)"), 16);
  EXPECT_THAT([&] { links(R"(, "beside": true, "links": 4)"); },
              ThrowsMessage<ConfigError>(HasSubstr("a member of 8 ranks has 4 links")));
}

constexpr const char* kVersion1 = R"({"format": "dear-cluster", "version": 1, "name": "by hand", "ranks": 16,
  "link": {"alpha_seconds": 5e-05, "beta_seconds_per_byte": 8e-09}})";

TEST(ClusterFile, OfVersion1IsOneSwitch) {
  const Network network{.name = "by hand", .link = {.alpha_seconds = 5e-5, .beta_seconds_per_byte = 8e-9}};
  EXPECT_EQ(parse_cluster(kVersion1, "x"), flat_cluster(network, 16));
  std::string text = kVersion1;
  text.replace(text.find("16"), 2, "0");
  EXPECT_THAT([&] { parse_cluster(text, "c.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("c.json: ranks: expected a whole")));
}

TEST(ClusterFile, IsANetwork) {
  const std::string folder = testing::TempDir();
  // Also where the name of the file looks like a description.
  for (const std::string name : {"cluster.json", "a=b", "plain"}) {
    const std::string path = folder + name;
    std::ofstream(path) << kVersion1;
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

TEST(ClusterFile, IsANetworkOnlyWhereRanksShareNothing) {
  const std::string path = testing::TempDir() + "not_flat.json";
  Cluster cluster = kMeasured;
  write_cluster(cluster, path);
  EXPECT_THAT([&] { parse_network(path); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("'shm, 2 nodes' has 2 dimensions"), HasSubstr("one switch"))));
  cluster.stragglers.clear();
  cluster.dimensions.pop_back();
  write_cluster(cluster, path);
  EXPECT_THAT([&] { parse_network(path); }, ThrowsMessage<ConfigError>(HasSubstr("has a full-mesh")));
  std::filesystem::remove(path);
}

TEST(ClusterFile, NamesThatAreNotUtf8AreRefused) {
  EXPECT_THAT([] { to_json(Cluster{.name = "\xff", .dimensions = {}}); },
              ThrowsMessage<ConfigError>(HasSubstr("UTF-8")));
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
        Fault{"\"version\": 2,", "\"version\": 2,,", "line 3"},
        Fault{"dear-cluster", "dear-workload", "not a cluster file"},
        Fault{"\"version\": 2,", "", "version: missing"},
        Fault{"\"version\": 2", "\"version\": 3", "version: found 3"},
        Fault{"\"version\": 2", "\"version\": \"2\"", "version: expected an integer"},
        Fault{"\"version\": 2", "\"version\": 1", "ranks: missing"},
        Fault{"\"size\": 2,", "", "dimensions[0].size: missing: add it"},
        Fault{"\"size\": 2", "\"size\": 0", "dimensions[0].size: "},
        Fault{"\"size\": 2", "\"size\": 1e300", "dimensions[0].size: "},
        Fault{"\"size\": 2", "\"size\": 18446744073709551615", "size: expected a whole number"},
        Fault{"\"size\": 2", "\"size\": 1073741824", "more than 1073741824 ranks"},
        Fault{"\"size\": 2", "\"size\": 1", "has no rank 3 to be a straggler"},
        Fault{"\"size\": 2", "\"size\": 2, \"racks\": 1", "racks: unknown"},
        Fault{"\"rail\"", "\"node\"", "dimensions[1].name: 'node' is the name of dimensions[0]"},
        Fault{"\"full-mesh\"", "\"torus\"", "dimensions[0].wiring: there is no"},
        Fault{"\"links\": 2", "\"links\": 0", "dimensions[1].links: "},
        Fault{"\"beside\": true", "\"beside\": 1", "dimensions[1].beside: expected true or"},
        Fault{"\"beside\": true", "\"beside\": \"yes\"", "expected true or false"},
        Fault{"1.5", "0.5", "'rail' is oversubscribed 0.5 times"},
        Fault{"\"slowdown\": 1.25", "\"slowdown\": 0.9", "straggler 3"},
        Fault{"\"communication\": 1.375,", "", "interference.communication: missing"},
        Fault{"1.0625", "0.99", "computation 0.99 times"},
        Fault{"1.0625", "\"much\"", "interference.computation: expected a number"},
        Fault{"\"launch_seconds\": 0.0078125,", "", "software.launch_seconds: missing"},
        Fault{"0.0078125", "-1", "software.launch_seconds: expected"},
        Fault{"\"rank\": 3", "\"rank\": -1", "stragglers[0].rank: expected"},
        Fault{"\"shm, 2 nodes\"", "7", "name: expected a string, found 7"},
        Fault{"\"alpha_seconds\": 0.3", "\"alpha_seconds\": -0.3", "link.alpha_seconds: expected"},
        Fault{"\"beta_seconds_per_byte\"", "\"beta\"", "link.beta_seconds_per_byte: missing"},
        Fault{"\"bytes\": 1048576", "\"bytes\": \"1MiB\"", "fit.samples[1].bytes: "},
        Fault{"\"model\": \"ring\"", "\"model\": null", "fit.model: expected a string"}));

TEST(FaultyClusterFile, EndsOrIsNoObject) {
  for (const char* text : {"", "[]", "{", "null", "{\"format\": 1}"}) {
    EXPECT_THAT([&] { parse_cluster(text, "c.json"); }, ThrowsMessage<ConfigError>(StartsWith("c.json: ")));
  }
}

}  // namespace
}  // namespace dear::cluster_file_test
