#include "dear/train/metrics/metrics_file.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"

namespace dear::metrics::metrics_file_test {
namespace {

TEST(MetricsFile, ALineHasEveryNumberByItsName) {
  StepMetrics metrics{
      .iteration = 7, .seconds = std::numeric_limits<double>::quiet_NaN(), .buckets = {8, 16}};
  metrics.nonfinite = "a \"quoted\"\nline";
  metrics.over_ranks["seconds"] = {.min = 1, .mean = 2, .max = 3};
  const std::string line = to_json_line(metrics, 2);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["iteration"], 7);
  EXPECT_TRUE(json["seconds"].is_null());
  EXPECT_EQ(json["buckets"], nlohmann::json({8, 16}));
  EXPECT_EQ(json["nonfinite"], metrics.nonfinite);
  EXPECT_EQ(json["over_ranks"]["seconds"]["max"], 3);
  EXPECT_EQ(json["lost_lines"], 2);
  EXPECT_FALSE(nlohmann::json::parse(to_json_line({})).contains("lost_lines"));
}

// Every write to this device finds the disk full.
TEST(MetricsFile, AFullDiskLosesLinesAndNothingElse) {
  MetricsFile file("/dev/full");
  file.write({});
  file.write({});
  EXPECT_THROW(MetricsFile("/no/such/folder/file"), ConfigError);
}

TEST(MetricsFile, APathNamesTheRank) {
  EXPECT_EQ(path_of_rank("m{rank}.jsonl", 12), "m12.jsonl");
  EXPECT_EQ(path_of_rank("m.jsonl", 12), "m.jsonl");
}

}  // namespace
}  // namespace dear::metrics::metrics_file_test
