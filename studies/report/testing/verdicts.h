#pragma once

#include "studies/report/statement.h"
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace dear::studies::testing {

// A result that somebody may see of whom a statement is wrong: `words` are of this statement alone.
template <class Findings>
struct WrongResult {
  std::string words;
  std::function<void(Findings&)> spoil;
};

// Each statement that `judge` makes of `right` holds in a case at least, and in none once its wrong result is
// seen. A statement without a wrong result fails the test.
template <class Findings, class Judge>
void expect_every_verdict_can_fail(const Findings& right, const std::vector<WrongResult<Findings>>& wrong,
                                   const Judge& judge) {
  const auto starts = [](const std::string& says, const std::string& words) {
    const std::size_t at = says.find(words);
    return at != std::string::npos && (at == 0 || says[at - 1] == ' ');
  };
  for (const Statement& statement : judge(right)) {
    int spoilt = 0;
    EXPECT_GT(statement.held, 0) << statement.says << ": " << statement.seen;
    for (const WrongResult<Findings>& one : wrong) {
      if (!starts(statement.says, one.words)) continue;
      ++spoilt;
      Findings findings = right;
      one.spoil(findings);
      for (const Statement& again : judge(findings)) {
        if (!starts(again.says, one.words)) continue;
        EXPECT_EQ(again.verdict(), "does not hold") << again.says << ": " << again.seen;
      }
    }
    EXPECT_EQ(spoilt, 1) << "one wrong result for: " << statement.says;
  }
}

}  // namespace dear::studies::testing
