#include "dear/tools/report_command/run.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/trace/chrome.h"
#include "dear/base/vocabulary/error.h"

namespace dear::report_command::run_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string trace_of(int rank) {
  return to_chrome_json(
      {.title = "a run",
       .network = "",
       .spans = {{.rank = rank, .lane = "compute", .name = "forward", .iteration = 0, .end_seconds = 1}}});
}
constexpr const char* kMetrics =
    R"({"rank":0,"ranks":2,"iteration":0,"steps":1,"seconds":0.5,"exposed_seconds":0.1,"communication_seconds":0.2,"overlap":0.5})"
    "\n";
constexpr const char* kResult = R"({"dear_version": "0.1.0", "modelled": [], "losses": [3.5, 3.25]})";

std::string refusal(Runs& runs, const std::string& name, const std::string& text) {
  try {
    runs.add(name, "f.json", text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}
std::string refusal(const std::string& text) {
  Runs runs;
  return refusal(runs, "a", text);
}

TEST(Runs, KeepFilesOfOneNameTogether) {
  Runs runs;
  runs.add("a", "0.json", trace_of(0));
  runs.add("b", "other.json", kResult);
  runs.add("a", "1.json", trace_of(1));
  runs.add("a", "m.jsonl", kMetrics);
  runs.add("a", "r.json", kResult);
  ASSERT_EQ(runs.runs().size(), 2U);
  const auto& run = runs.runs()[0];
  EXPECT_EQ(run.name, "a");
  EXPECT_EQ(run.trace->spans.size(), 2U);
  EXPECT_EQ(run.metrics.at(0).at(0).at("seconds"), 0.5);
  EXPECT_EQ(run.results->at("losses").at(1), 3.25);
}

TEST(Runs, RefuseTwoOfOneName) {
  Runs runs;
  runs.add("a", "0.json", trace_of(0));
  runs.add("a", "m.jsonl", kMetrics);
  runs.add("a", "r.json", kResult);
  EXPECT_THAT(refusal(runs, "a", trace_of(0)),
              AllOf(StartsWith("f.json: run 'a' has a trace of rank 0"), HasSubstr("NAME=f.json")));
  EXPECT_THAT(refusal(runs, "a", kMetrics), HasSubstr("has metrics of rank 0 already"));
  EXPECT_THAT(refusal(runs, "a", kResult), HasSubstr("has results already"));
  EXPECT_EQ(refusal(runs, "b", kResult), "");
}

TEST(Runs, RefuseWhatIsNone) {
  EXPECT_THAT(refusal(""), StartsWith("f.json: it is empty"));
  EXPECT_THAT(refusal(" \n"), StartsWith("f.json: it is empty"));
  EXPECT_THAT(refusal("words"), StartsWith("f.json: parse error"));
  EXPECT_THAT(refusal("{}"), HasSubstr("it is no file that a report is made of"));
  EXPECT_THAT(refusal("[]"), HasSubstr("it is no file that a report is made of"));
  EXPECT_THAT(refusal(R"({"format": "dear-workload"})"), HasSubstr("it is of format dear-workload"));
  const std::string trace = trace_of(0);
  EXPECT_THAT(refusal(trace.substr(0, trace.size() / 2)), StartsWith("f.json: parse error"));
  EXPECT_THAT(refusal(to_chrome_json({.title = "none"})), HasSubstr("without a span"));
  const std::string metrics = kMetrics;
  EXPECT_THAT(refusal(metrics + metrics.substr(0, 100)), StartsWith("f.json, line 2: parse error"));
  EXPECT_THAT(refusal(metrics + "{}\n"), HasSubstr("line 2: it is no line of a metrics file"));
}

}  // namespace
}  // namespace dear::report_command::run_test
