#include "dear/base/trace/kineto.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/trace/summary.h"
#include "dear/base/vocabulary/error.h"

namespace dear::kineto_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string event(const std::string& category, const std::string& name, int thread, double begin,
                  double length) {
  return fmt::format(R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 0, "tid": {}, "ts": {}, "dur": {}}})",
                     category, name, thread, begin, length);
}
std::string file(const std::vector<std::string>& events) {
  return fmt::format(
      R"({{"schemaVersion": 1, "distributedInfo": {{"backend": "nccl", "rank": 3, "world_size": 8}},
          "baseTimeNanoseconds": 7000, "traceEvents": [{}]}})",
      fmt::join(events, ", "));
}

// Two steps of 100 us, from 1000 us on: a kernel of 60 us, NCCL's from the 40th to the 80th, a copy to the
// 90th.
TEST(Kineto, TakesKernelsOfAGpu) {
  std::vector<std::string> events{event("user_annotation", "ProfilerStep#4", 1, 900, 100),
                                  event("cpu_op", "aten::mm", 1, 900, 50)};
  for (const int step : {0, 1}) {
    const double t = 1000 + 100 * step;
    events.push_back(event("gpu_user_annotation", fmt::format("ProfilerStep#{}", 4 + step), 7, t, 100));
    events.push_back(event("kernel", "gemm", 7, t, 60));
    events.push_back(event("kernel", "ncclDevKernel_AllReduce", 20, t + 40, 40));
    events.push_back(event("gpu_memcpy", "Memcpy DtoD", 7, t + 80, 10));
  }
  const KinetoTrace read = parse_kineto(file(events), "k.json");
  EXPECT_EQ(read.origin_nanoseconds, 7000 + 1'000'000);
  ASSERT_EQ(read.trace.spans.size(), 6U);
  EXPECT_EQ(read.trace.spans[0].rank, 3);
  EXPECT_EQ(read.trace.spans[0].lane, "compute");
  EXPECT_EQ(read.trace.spans[0].iteration, 4);
  EXPECT_EQ(read.trace.spans[1].lane, "network");
  EXPECT_EQ(read.trace.spans[1].activity, Activity::communication);
  EXPECT_EQ(read.trace.spans[2].lane, "copies");
  EXPECT_EQ(read.trace.spans[3].iteration, 5);
  EXPECT_DOUBLE_EQ(read.trace.spans[3].begin_seconds, 100e-6);
  const TraceSummary summary = summarize(read.trace);
  EXPECT_EQ(summary.iterations, 2);
  EXPECT_NEAR(summary.communication_seconds, 40e-6, 1e-12);
  EXPECT_NEAR(summary.exposed_seconds, 20e-6, 1e-12);
}

TEST(Kineto, TakesOutermostOperatorsOfTheHost) {
  const KinetoTrace read = parse_kineto(
      file({event("user_annotation", "ProfilerStep#0", 1, 0, 100),
            event("user_annotation", "DistributedDataParallel.forward", 1, 5, 20),
            event("cpu_op", "aten::linear", 1, 10, 10), event("cpu_op", "aten::addmm", 1, 12, 5),
            event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 1, 30, 10),
            event("user_annotation", "Optimizer.step#SGD.step", 1, 60, 10),
            event("cpu_op", "aten::add_", 1, 61, 5), event("user_annotation", "gloo:all_reduce", 2, 35, 20),
            event("cpu_op", "aten::copy_", 3, 1, 2)}),
      "k.json");
  std::vector<std::string> said;
  for (const Span& span : read.trace.spans)
    said.push_back(fmt::format("{}, {}, {}", span.lane, span.name, static_cast<int>(span.activity)));
  EXPECT_THAT(
      said, ::testing::UnorderedElementsAre("network, gloo:all_reduce, 4", "compute, aten::linear, 0",
                                            "compute, autograd::engine::evaluate_function: AddmmBackward0, 1",
                                            "compute, aten::add_, 2", "thread 3, aten::copy_, 6"));
}

TEST(Kineto, RefusesWhatHasNoSpan) {
  EXPECT_THAT([] { parse_kineto(file({}), "k.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("k.json: it has no operator and no kernel")));
  EXPECT_THAT([] { parse_kineto(file({event("kernel", "gemm", 7, 0, -1)}), "k.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("negative")));
  EXPECT_THAT([] { parse_kineto(R"({"schemaVersion": 1, "traceEvents": [)", "k.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("correct the JSON")));
  EXPECT_THAT([] { parse_kineto(R"({"schemaVersion": 1, "traceEvents": [3]})", "k.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("traceEvents[0]")));
  EXPECT_THAT([] { parse_kineto(R"({"schemaVersion": 1})", "k.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("traceEvents: missing")));
  EXPECT_THAT([] { parse_kineto(R"(["schemaVersion", "traceEvents"])", "k.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("expected an object")));
}

// Nanoseconds of two files are subtracted, which 64 bits have to hold.
TEST(Kineto, RefusesTimesOfCenturies) {
  const std::string good = file({event("cpu_op", "aten::mm", 1, 900, 50)});
  EXPECT_NO_THROW(parse_kineto(good, "k.json"));
  std::string bad = good;
  bad.replace(bad.find("7000"), 4, "9223372036854775807");
  EXPECT_THAT([&] { parse_kineto(bad, "k.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("baseTimeNanoseconds")));
  EXPECT_THAT([] { parse_kineto(file({event("cpu_op", "aten::mm", 1, 9.5e15, 50)}), "k.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("some years")));
}

TEST(Kineto, IsToldFromATraceOfDear) {
  EXPECT_TRUE(is_kineto(file({})));
  EXPECT_FALSE(is_kineto(R"({"traceEvents": [], "otherData": {"format": "dear-trace"}})"));
}

}  // namespace
}  // namespace dear::kineto_test
