#include "dear/tools/case_options/simulated_cases.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/tools/cases/testing/two_scenarios.h"

namespace dear::cli::simulated_cases_test {
namespace {

using cases::testing::serial_and_wfbp;
using cases::testing::two_scenarios;
using ::testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

TEST(SimulatedCases, StandInATableWithSpeedUpsOverTheFirst) {
  const std::vector<cases::Scenario> scenarios = two_scenarios();
  const std::vector<std::string> lines = lines_of(table_of(cases::simulate(scenarios, serial_and_wfbp()), 2));
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_THAT(lines[0], ::testing::ContainsRegex(
                            "^model +cluster +policy +ranks +buckets +iteration +compute +exposed comm. "
                            "+bound +ratio to bound +memory +speed-up$"));
  // Memory: parameters, gradients and one state, 16 bytes each. Bound of wfbp: 2 + max(4, 4).
  EXPECT_THAT(lines[1],
              ::testing::ContainsRegex("^two +pair +serial +2 +2 +10 s +6 s +4 s +10 s +1.000 +48 B +1.00$"));
  EXPECT_THAT(lines[2],
              ::testing::ContainsRegex("^two +pair +wfbp +2 +2 +8 s +6 s +2 s +6 s +1.333 +48 B +1.25$"));
  EXPECT_THAT(lines[3], HasSubstr("free"));
  EXPECT_THAT(lines[4], ::testing::ContainsRegex("1.00$"));
}

TEST(SimulatedCases, SayHowSureTheyAreWhereTimesVary) {
  const std::vector<cases::Scenario> scenarios = two_scenarios();
  cases::CaseOptions options = serial_and_wfbp();
  options.evaluate = {.jitter = 0.1, .repetitions = 5};
  EXPECT_THAT(table_of(cases::simulate(scenarios, options), 2), HasSubstr(" +- "));
}

}  // namespace
}  // namespace dear::cli::simulated_cases_test
