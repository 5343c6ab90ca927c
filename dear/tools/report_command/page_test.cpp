#include "dear/tools/report_command/page.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/trace/chrome.h"

namespace dear::report_command::page_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// An iteration of 10 s: forward 0..4, backward 4..8, a collective 6..10.
Runs one_run(const std::string& name) {
  Trace trace{.title = "</script><b>", .network = ""};
  const auto add = [&](const char* lane, const char* what, Activity activity, double begin, double end) {
    trace.spans.push_back({.lane = lane,
                           .name = what,
                           .activity = activity,
                           .iteration = 0,
                           .begin_seconds = begin,
                           .end_seconds = end});
  };
  add("network", "all-reduce bucket 0", Activity::communication, 6, 10);
  add("compute", "forward", Activity::forward, 0, 4);
  add("compute", "backward", Activity::backward, 4, 8);
  Runs runs;
  runs.add(name, "run.json", to_chrome_json(trace));
  return runs;
}

TEST(Page, DataHasTheNumbersOfTheTrace) {
  const Json data = data_of(one_run("a"), "");
  const Json& trace = data.at("runs").at(0).at("trace");
  EXPECT_EQ(trace.at("summary").at("exposed_communication_seconds"), 2.0);
  EXPECT_EQ(trace.at("summary").at("hidden_fraction"), 0.5);
  const Json& rank = trace.at("by_rank").at(0);
  EXPECT_EQ(rank.at("computation_seconds"), 6.0);
  EXPECT_EQ(rank.at("hidden_seconds"), 2.0);
  EXPECT_EQ(rank.at("exposed"), Json({8'000'000'000, 2'000'000'000}));
  EXPECT_EQ(trace.at("by_collective").at(0).at("bucket"), 0);
  const Json& lanes = trace.at("lanes");
  EXPECT_EQ(lanes.at(0).at("lane"), "compute");
  EXPECT_EQ(lanes.at(0).at("spans"), Json({0, 4'000'000'000, 1, 0, 4'000'000'000, 4'000'000'000, 2, 0}));
  EXPECT_EQ(trace.at("names").at(1), Json({"forward", "forward"}));
}

TEST(Page, NothingInAFileIsMarkup) {
  const std::string page = page_of(one_run("<i>{{data}}"), "<u>&{{script}}");
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cb>"));
  EXPECT_THAT(page, HasSubstr("<title>&lt;u>&amp;{{script}}</title>"));
  EXPECT_THAT(page, Not(HasSubstr("<i>")));
}

TEST(Page, BeginsWithItsGeneratorAndItsPolicy) {
  const std::string begin = page_of(one_run("a"), "").substr(0, 1024);
  EXPECT_THAT(begin, HasSubstr(kGenerator));
  EXPECT_THAT(begin, HasSubstr("default-src 'none'"));
}

}  // namespace
}  // namespace dear::report_command::page_test
