#include "dear/schedule/policies/schedule_file.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::schedule_file_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

const ScheduleFile kPlanned{.model = "two \"layers\"",
                            .cluster = "10gbe",
                            .ranks = 64,
                            .policy = "dear",
                            .buckets = {.buckets = {{"first.weight", "first.bias"}, {"second.weight"}}}};

// By hand what kPlanned is.
constexpr const char* kText = R"({
  "format": "dear-schedule",
  "version": 3,
  "model": "two \"layers\"",
  "cluster": "10gbe",
  "ranks": 64,
  "policy": "dear",
  "buckets": [
    ["first.weight","first.bias"],
    ["second.weight"]
  ]
}
)";

TEST(ScheduleFile, IsWrittenWithABucketALine) { EXPECT_EQ(to_json(kPlanned), kText); }

TEST(ScheduleFile, WhatIsWrittenIsRead) {
  const std::string path = ::testing::TempDir() + "round_trip_schedule.json";
  write_schedule_file(kPlanned, path);
  const ScheduleFile read = read_schedule_file(path);
  EXPECT_EQ(read.model, kPlanned.model);
  EXPECT_EQ(read.cluster, "10gbe");
  EXPECT_EQ(read.ranks, 64);
  EXPECT_EQ(read.policy, "dear");
  EXPECT_EQ(read.buckets.buckets, kPlanned.buckets.buckets);
  EXPECT_EQ(read.buckets.source, path);
  EXPECT_EQ(to_json(read), kText);
  std::filesystem::remove(path);
  EXPECT_THAT([&] { read_schedule_file(path); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr(path), HasSubstr("No such file"))));
}

TEST(ScheduleFile, KeepsChunks) {
  ScheduleFile file = kPlanned;
  file.buckets.chunk_bytes = {0, 4096};
  const std::string text = to_json(file);
  EXPECT_THAT(text, HasSubstr("  ],\n  \"chunk_bytes\": [0,4096]\n}\n"));
  EXPECT_EQ(parse_schedule_file(text, "x").buckets.chunk_bytes, file.buckets.chunk_bytes);
  EXPECT_EQ(to_json(parse_schedule_file(text, "x")), text);
}

TEST(ScheduleFile, OfVersion2IsRead) {
  std::string text = kText;
  text.replace(text.find("\"version\": 3"), 12, "\"version\": 2");
  text.replace(text.find("\"ranks\""), 0, "\"piece_bytes\": [0, 4096], ");
  EXPECT_THAT(parse_schedule_file(text, "x").buckets.chunk_bytes, ::testing::ElementsAre(0, 4096));
}

TEST(ScheduleFile, OfVersion1IsRead) {
  std::string text = kText;
  text.replace(text.find("\"version\": 3"), 12, "\"version\": 1");
  EXPECT_EQ(to_json(parse_schedule_file(text, "x")), kText);
  text.replace(text.find("\"ranks\""), 0, "\"chunk_bytes\": [0, 0], ");
  EXPECT_THAT([&] { parse_schedule_file(text, "x"); },
              ThrowsMessage<ConfigError>(HasSubstr("chunk_bytes: unknown")));
}

TEST(ScheduleFile, TakesEveryPolicyThereIs) {
  for (const Policy& policy : policies()) {
    ScheduleFile file = kPlanned;
    file.policy = policy.name;
    EXPECT_EQ(parse_schedule_file(to_json(file), "x").policy, policy.name);
  }
}

TEST(ScheduleFile, GivesTheScheduleAgainInAnyOrderOfBuckets) {
  testing::Random random(20260711);
  const Policy& dear = find_policy("dear");
  for (int round = 0; round < 100; ++round) {
    const Workload workload = random_workload(random, 20);
    const Grouping grouping = random_grouping(random, workload);
    const std::string text = to_json({.model = workload.name,
                                      .cluster = "x",
                                      .ranks = 2,
                                      .policy = "dear",
                                      .buckets = names_in(workload, grouping)});
    ByName buckets = parse_schedule_file(text, "x").buckets;
    const std::uint64_t digest = make_schedule(dear, workload, grouping).digest();
    EXPECT_EQ(make_schedule(dear, workload, group(workload, buckets)).digest(), digest);
    std::reverse(buckets.buckets.begin(), buckets.buckets.end());
    for (std::vector<std::string>& names : buckets.buckets) std::reverse(names.begin(), names.end());
    EXPECT_EQ(make_schedule(dear, workload, group(workload, buckets)).digest(), digest);
  }
}

TEST(ScheduleFile, OfAnotherModelIsNamedWithTheTensor) {
  const ScheduleFile file = parse_schedule_file(kText, "plan.json");
  const Workload other{.name = "other", .tensors = {{"first.weight", 10}}, .layers = {{"first", {0}, 0, 0}}};
  EXPECT_THAT([&] { group(other, file.buckets); },
              ThrowsMessage<ConfigError>(AllOf(StartsWith("plan.json: buckets[0][1]: "),
                                               HasSubstr("'other' has no tensor 'first.bias'"))));
}

TEST(ScheduleFile, NamesThatAreNotUtf8AreRefused) {
  ScheduleFile file = kPlanned;
  file.buckets.buckets[1][0] = "\xff";
  EXPECT_THAT([&] { to_json(file); }, ThrowsMessage<ConfigError>(HasSubstr("UTF-8")));
}

struct Fault {
  std::string replaced;
  std::string by;
  std::string message;
};
class FaultyScheduleFile : public ::testing::TestWithParam<Fault> {};
TEST_P(FaultyScheduleFile, IsRefusedWithThePlaceAndTheRemedy) {
  std::string text = kText;
  const std::size_t at = text.find(GetParam().replaced);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, GetParam().replaced.size(), GetParam().by);
  EXPECT_THAT([&] { parse_schedule_file(text, "s.json"); },
              ThrowsMessage<ConfigError>(AllOf(StartsWith("s.json: "), HasSubstr(GetParam().message))));
}
INSTANTIATE_TEST_SUITE_P(
    Files, FaultyScheduleFile,
    ::testing::Values(Fault{"\"version\": 3,", "\"version\": 3,,", "line 3"},
                      Fault{"dear-schedule", "dear-cluster", "not a schedule file"},
                      Fault{"\"version\": 3,", "", "version: missing"},
                      Fault{"\"version\": 3", "\"version\": 4", "version: found 4"},
                      Fault{"64", "64, \"chunk_bytes\": [0]", "chunk_bytes: 1 sizes for 2"},
                      Fault{"64", "64, \"chunk_bytes\": [0, -1]", "chunk_bytes[1]: "},
                      Fault{"64", "64, \"chunk_bytes\": 8", "chunk_bytes: expected an array"},
                      Fault{"\"model\"", "\"job\"", "model: missing"},
                      Fault{"\"cluster\": \"10gbe\"", "\"cluster\": null", "cluster: expected a string"},
                      Fault{"64", "0", "ranks: expected a whole number"},
                      Fault{"64", "64, \"fusion\": \"all\"", "fusion: unknown"},
                      Fault{"\"dear\",", "\"hope\",", "policy: no policy is called \"hope\""},
                      Fault{"\"policy\": \"dear\",", "", "policy: missing"},
                      Fault{"[\n", "7, \"x\": [\n", "x: unknown"},
                      Fault{"[\"second.weight\"]", "\"second.weight\"", "buckets[1]: expected an array"},
                      Fault{"\"first.bias\"", "7", "buckets[0][1]: expected a string"}));

TEST(FaultyScheduleFile, EndsOrIsNoObject) {
  for (const char* text : {"", "[]", "{", "null", "{\"format\": 1}"}) {
    EXPECT_THAT([&] { parse_schedule_file(text, "s.json"); },
                ThrowsMessage<ConfigError>(StartsWith("s.json: ")));
  }
}

}  // namespace
}  // namespace dear::schedule_file_test
