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

// Holds each statement that `judge` makes of `right` to three things: it holds in a case at least; one wrong
// result is given for it; and of that `judge` still makes a statement with its words, and says "does not
// hold".
template <class Findings, class Judge>
void expect_every_verdict_can_fail(const Findings& right, const std::vector<WrongResult<Findings>>& wrong,
                                   const Judge& judge) {
  const auto is_of = [](const std::string& says, const std::string& words) {
    const std::size_t at = says.find(words);
    return at != std::string::npos && (at == 0 || says[at - 1] == ' ');
  };
  for (const Statement& statement : judge(right)) {
    int spoilt = 0;
    EXPECT_GT(statement.held, 0) << statement.says << ": " << statement.seen;
    for (const WrongResult<Findings>& one : wrong) {
      if (!is_of(statement.says, one.words)) continue;
      ++spoilt;
      Findings findings = right;
      one.spoil(findings);
      int judged = 0;
      for (const Statement& again : judge(findings)) {
        if (!is_of(again.says, one.words)) continue;
        ++judged;
        EXPECT_EQ(again.verdict(), "does not hold") << again.says << ": " << again.seen;
      }
      EXPECT_GE(judged, 1) << "a wrong result took away: " << statement.says;
    }
    EXPECT_EQ(spoilt, 1) << "one wrong result for: " << statement.says;
  }
}

}  // namespace dear::studies::testing
