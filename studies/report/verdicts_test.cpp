#include "studies/report/testing/verdicts.h"

#include <string>
#include <vector>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace dear::studies::verdicts_test {
namespace {

// Judges of each number whether it is positive; none of 0.
std::vector<Statement> positive(const std::vector<int>& numbers) {
  std::vector<Statement> statements;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] == 0) continue;
    Cases cases("number " + std::to_string(i) + " is positive");
    cases.add(numbers[i] > 0);
    statements.push_back(cases.finish());
  }
  return statements;
}

const std::vector<int> kRight = {3, 4};

testing::WrongResult<std::vector<int>> with(const std::string& words, std::size_t which, int number) {
  return {words, [=](std::vector<int>& numbers) { numbers[which] = number; }};
}

void expect_of(const std::vector<testing::WrongResult<std::vector<int>>>& wrong) {
  testing::expect_every_verdict_can_fail(kRight, wrong, positive);
}

TEST(Verdicts, ThatFailOfAWrongResultPass) { expect_of({with("number 0", 0, -1), with("number 1", 1, -1)}); }

TEST(Verdicts, OfAWrongResultThatTakesTheStatementAwayAreNotPassed) {
  EXPECT_NONFATAL_FAILURE(expect_of({with("number 0", 0, -1), with("number 1", 1, 0)}),
                          "took away: number 1");
}

TEST(Verdicts, ThatHoldOfTheWrongResultAreNotPassed) {
  EXPECT_NONFATAL_FAILURE(expect_of({with("number 0", 0, -1), with("number 1", 1, 5)}), "does not hold");
}

TEST(Verdicts, WithoutAWrongResultAreNotPassed) {
  EXPECT_NONFATAL_FAILURE(expect_of({with("number 0", 0, -1)}), "one wrong result for: number 1");
}

}  // namespace
}  // namespace dear::studies::verdicts_test
