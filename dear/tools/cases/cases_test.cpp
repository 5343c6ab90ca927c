#include "dear/tools/cases/cases.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/trace/trace.h"
#include "dear/tools/cases/testing/two_scenarios.h"

namespace dear::cases::cases_test {
namespace {

using cases::testing::serial_and_wfbp;
using cases::testing::two_scenarios;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Cases, AreAllPoliciesInAllScenarios) {
  const std::vector<Scenario> scenarios = two_scenarios();
  const std::vector<Case> cases = simulate(scenarios, serial_and_wfbp());
  ASSERT_EQ(cases.size(), 4U);
  std::vector<double> seconds;
  for (const Case& one : cases) seconds.push_back(one.evaluation.iteration.seconds);
  EXPECT_THAT(seconds, ElementsAre(10, 8, 6, 6));
  EXPECT_EQ(cases[0].scenario, &scenarios[0]);
  EXPECT_EQ(cases[3].scenario, &scenarios[1]);
  EXPECT_EQ(cases[1].policy->name, "wfbp");
  EXPECT_EQ(cases[1].grouping.size(), 2U);
  EXPECT_EQ(cases[1].fusion, "layer");
}

TEST(Cases, AreWrittenAsJson) {
  const std::vector<Scenario> scenarios = two_scenarios();
  const nlohmann::ordered_json list =
      nlohmann::ordered_json::parse(to_json(simulate(scenarios, serial_and_wfbp())));
  ASSERT_EQ(list.size(), 4U);
  for (const auto& row : list) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : row.items()) keys.push_back(key);
    EXPECT_THAT(keys, ElementsAre("model", "cluster", "ranks", "policy", "fusion", "buckets",
                                  "iteration_seconds", "compute_seconds", "exposed_communication_seconds",
                                  "bound_seconds", "memory_bytes"));
  }
  EXPECT_EQ(list[1], (nlohmann::ordered_json{{"model", "two"},
                                             {"cluster", "pair"},
                                             {"ranks", 2},
                                             {"policy", "wfbp"},
                                             {"fusion", "layer"},
                                             {"buckets", 2},
                                             {"iteration_seconds", 8.0},
                                             {"compute_seconds", 6.0},
                                             {"exposed_communication_seconds", 2.0},
                                             {"bound_seconds", 6.0},
                                             {"memory_bytes", 48}}));
}

// One more key, only where there is an interval.
TEST(Cases, SayHowSureTheyAreWhereTimesVary) {
  const std::vector<Scenario> scenarios = two_scenarios();
  CaseOptions options = serial_and_wfbp();
  options.evaluate = {.jitter = 0.1, .repetitions = 5};
  const std::vector<Case> cases = simulate(scenarios, options);
  const auto list = nlohmann::json::parse(to_json(cases));
  EXPECT_EQ(list[0].size(), 12U);
  EXPECT_EQ(list[0].at("iteration_seconds_half_width"), cases[0].evaluation.iteration.half_width_seconds);
}

TEST(Cases, AreDrawnAPanelForEachScenario) {
  const std::vector<Scenario> scenarios = two_scenarios();
  const std::string svg = plot(simulate(scenarios, serial_and_wfbp()), "A title & more");
  EXPECT_THAT(svg, HasSubstr("<svg"));
  EXPECT_THAT(svg, HasSubstr("A title &amp; more"));
  EXPECT_THAT(svg, Not(HasSubstr("title & more")));
  for (const char* const text : {"two on pair, 2 ranks", "two on free, 2 ranks", "serial", "wfbp",
                                 "computation", "exposed communication", "bound of the policy"})
    EXPECT_THAT(svg, HasSubstr(text));
}

TEST(Cases, HaveATimelineOfRankZero) {
  const std::vector<Scenario> scenarios = two_scenarios();
  const std::vector<Case> cases = simulate(scenarios, serial_and_wfbp());
  const Trace trace = trace_of(cases[1]);
  EXPECT_EQ(trace.title, "dear simulate, policy wfbp, 2 ranks");
  EXPECT_THAT(trace.network, HasSubstr("modelled: pair (2 x"));
  EXPECT_EQ(trace.spans.size(), cases[1].evaluation.spans.size());
  EXPECT_TRUE(std::all_of(trace.spans.begin(), trace.spans.end(), [](const Span& span) {
    return span.rank == 0 && span.begin_seconds <= span.end_seconds;
  }));
}

}  // namespace
}  // namespace dear::cases::cases_test
