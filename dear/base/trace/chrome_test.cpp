#include "dear/base/trace/chrome.h"

#include <filesystem>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::chrome_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

Trace two_ranks() {
  return {.title = "dear train, policy dear, 2 ranks",
          .network = "modelled: 1gbit",
          .spans = {{0, "network", "reduce-scatter bucket 0", Activity::communication, 3, 7, 1.0, 1.5},
                    {0, "compute", "forward \"block.3\"", Activity::forward, 4, 0, 1.25, 1.250001234},
                    {0, "extra", "load data", Activity::other, -1, -1, 0.5, 0.5},
                    {1, "compute", "wait for bucket 0", Activity::wait, 4, -1, 2.0, 2.25},
                    {1, "update", "update of bucket 1", Activity::update, 4, 2, 3.0, 3.5},
                    {1, "compute", "backward ünïcode", Activity::backward, 4, 1, 2.5, 3.0}}};
}

class ChromeFile : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  void expect_refused(const std::string& content, const std::string& message) const {
    os::write_file_atomically(path_, content);
    EXPECT_THAT([&] { read_chrome_trace(path_); },
                ThrowsMessage<ConfigError>(AllOf(StartsWith(path_ + ": "), HasSubstr(message))));
  }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("dear-trace-" + std::to_string(::getpid()) + ".json"))
          .string();
};

TEST(ChromeJson, NamesProcessesAndThreadsOnce) {
  const json document = json::parse(to_chrome_json(two_ranks()));
  std::vector<std::string> metadata;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] != "M") continue;
    metadata.push_back(event["name"].get<std::string>() + " " + event["pid"].dump() + " " +
                       event["tid"].dump() + " " + event["args"].dump());
  }
  EXPECT_THAT(
      metadata,
      ElementsAre(R"(process_name 0 0 {"name":"rank 0"})", R"(process_sort_index 0 0 {"sort_index":0})",
                  R"(thread_name 0 0 {"name":"compute"})", R"(thread_sort_index 0 0 {"sort_index":0})",
                  R"(thread_name 0 2 {"name":"network"})", R"(thread_sort_index 0 2 {"sort_index":2})",
                  R"(thread_name 0 3 {"name":"extra"})", R"(thread_sort_index 0 3 {"sort_index":3})",
                  R"(process_name 1 0 {"name":"rank 1"})", R"(process_sort_index 1 0 {"sort_index":1})",
                  R"(thread_name 1 0 {"name":"compute"})", R"(thread_sort_index 1 0 {"sort_index":0})",
                  R"(thread_name 1 1 {"name":"update"})", R"(thread_sort_index 1 1 {"sort_index":1})"));
}

TEST(ChromeJson, WritesSpansInMicroseconds) {
  const json document = json::parse(to_chrome_json(two_ranks()));
  std::vector<json> spans;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] == "X") spans.push_back(event);
  }
  ASSERT_EQ(spans.size(), 6U);
  EXPECT_EQ(spans[0],
            json::parse(R"({"ph": "X", "name": "reduce-scatter bucket 0", "cat": "communication", "pid": 0,
      "tid": 2, "ts": 1e6, "dur": 5e5, "args": {"activity": "communication", "iteration": 3, "step": 7}})"));
  EXPECT_EQ(spans[1]["ts"], 1250000.0);
  EXPECT_EQ(spans[1]["dur"], 1.234);
  EXPECT_EQ(document["displayTimeUnit"], "ms");
  EXPECT_EQ(document["otherData"]["title"], "dear train, policy dear, 2 ranks");
  EXPECT_EQ(document["otherData"]["network"], "modelled: 1gbit");
}

TEST(ChromeJson, ReplacesBytesThatAreNotUtf8) {
  Trace trace = two_ranks();
  trace.spans[0].name = "bad \xff name";
  EXPECT_THAT(to_chrome_json(trace), HasSubstr("bad \xEF\xBF\xBD name"));
}

TEST_F(ChromeFile, SurvivesARoundTrip) {
  const Trace trace = two_ranks();
  write_chrome_trace(trace, path_);
  const Trace read = read_chrome_trace(path_);
  EXPECT_EQ(read.title, trace.title);
  EXPECT_EQ(read.network, trace.network);
  ASSERT_EQ(read.spans.size(), trace.spans.size());
  for (std::size_t s = 0; s < trace.spans.size(); ++s) {
    EXPECT_EQ(read.spans[s].rank, trace.spans[s].rank);
    EXPECT_EQ(read.spans[s].lane, trace.spans[s].lane);
    EXPECT_EQ(read.spans[s].name, trace.spans[s].name);
    EXPECT_EQ(read.spans[s].activity, trace.spans[s].activity);
    EXPECT_EQ(read.spans[s].iteration, trace.spans[s].iteration);
    EXPECT_EQ(read.spans[s].step, trace.spans[s].step);
    EXPECT_NEAR(read.spans[s].begin_seconds, trace.spans[s].begin_seconds, 1e-12);
    EXPECT_NEAR(read.spans[s].end_seconds, trace.spans[s].end_seconds, 1e-12);
  }
}

TEST_F(ChromeFile, MayHaveNoSpans) {
  write_chrome_trace({.title = "", .network = "", .spans = {}}, path_);
  EXPECT_TRUE(read_chrome_trace(path_).spans.empty());
}

// A month after the clock's epoch, back to back at lengths that no nanosecond divides: end and next begin
// stay equal.
TEST_F(ChromeFile, KeepsTouchingSpansTouching) {
  Trace trace;
  double now = 2.6e6 + 1.0 / 3;
  for (int i = 0; i < 1000; ++i) {
    const double end = now + 1e-6 / 7 * (i % 13);
    trace.spans.push_back({0, "compute", "work", Activity::other, 0, 0, now, end});
    now = end;
  }
  write_chrome_trace(trace, path_);
  const Trace read = read_chrome_trace(path_);
  ASSERT_EQ(read.spans.size(), 1000U);
  for (std::size_t s = 1; s < read.spans.size(); ++s) {
    EXPECT_EQ(read.spans[s - 1].end_seconds, read.spans[s].begin_seconds) << s;
    EXPECT_NEAR(read.spans[s].begin_seconds, trace.spans[s].begin_seconds, 1e-9);
  }
}

TEST_F(ChromeFile, OfAnotherKindIsRefused) {
  EXPECT_THAT([] { read_chrome_trace("/no/such/trace.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("/no/such/trace.json")));
  expect_refused("{\n\"traceEvents\": [\n}", "parse error at line 3, column 1");
  expect_refused("[]", "expected an object");
  expect_refused("{}", "otherData: missing");
  expect_refused(R"({"traceEvents": [], "otherData": {"format": "other", "version": 1}})", "format other");
  expect_refused(R"({"traceEvents": [], "otherData": {"format": "dear-trace", "version": 2}})", "version 2");
}

// It begins as one of torch.profiler, which may hold anything.
TEST_F(ChromeFile, OfTorchsProfilerIsRefusedByItsName) {
  expect_refused(
      "{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n  ],\n  \"traceEvents\": [\n  {\"ph\": \"i\"}, "
      "{",
      "a trace of torch.profiler");
}

TEST_F(ChromeFile, WithAFaultyEventIsRefusedWithItsPlace) {
  const json good = json::parse(to_chrome_json(two_ranks()));
  const auto with_event = [&](const std::function<void(json&)>& change) {
    json bad = good;
    change(bad["traceEvents"].back());
    return bad.dump();
  };
  const std::string last = std::to_string(good["traceEvents"].size() - 1);
  expect_refused(with_event([](json& e) { e["ts"] = "soon"; }),
                 "traceEvents[" + last + "].ts: expected a number");
  expect_refused(with_event([](json& e) { e.erase("dur"); }), "traceEvents[" + last + "].dur: missing");
  expect_refused(with_event([](json& e) { e["ph"] = "B"; }),
                 "traceEvents[" + last + "].ph: expected M or X, found B");
  expect_refused(with_event([](json& e) { e["dur"] = -1; }), "traceEvents[" + last + "].dur: it is negative");
  expect_refused(with_event([](json& e) { e["tid"] = 9; }), "thread 9 of process 1");
  expect_refused(with_event([](json& e) { e["args"]["activity"] = "rest"; }), "there is no activity 'rest'");
}

}  // namespace
}  // namespace dear::chrome_test
