#include "studies/report/statement.h"

#include <gtest/gtest.h>

namespace dear::studies::statement_test {
namespace {

TEST(Statement, HoldsInAsManyCasesAsWereSeen) {
  Cases cases("The sky is blue");
  EXPECT_EQ(cases.finish().verdict(), "not looked at");
  cases.add(true, "Monday");
  EXPECT_EQ(cases.finish().verdict(), "holds");
  cases.add(false);
  cases.add(false, "Wednesday");
  const Statement statement = cases.finish(", and so on");
  EXPECT_EQ(statement.verdict(), "holds in 1 of 3");
  EXPECT_EQ(statement.seen, "Monday; Wednesday, and so on");
  EXPECT_EQ(table_of({statement}),
            "| statement | what we saw | verdict |\n|---|---|---|\n"
            "| The sky is blue | Monday; Wednesday, and so on | holds in 1 of 3 |\n");
  cases.add(Judged::undecided, "Thursday, in fog");
  EXPECT_EQ(cases.finish().verdict(), "holds in 1 of 4, 1 undecided");
  Cases fog("It rains");
  fog.add(Judged::undecided);
  EXPECT_EQ(fog.finish().verdict(), "undecided");
  fog.add(Judged::fails);
  EXPECT_EQ(fog.finish().verdict(), "holds in 0 of 2, 1 undecided");
  Cases unknown("It snows");
  unknown.add(Judged::not_comparable);
  EXPECT_EQ(unknown.finish().verdict(), "not comparable");
  unknown.add(Judged::undecided);
  unknown.add(false);
  EXPECT_EQ(unknown.finish().verdict(), "holds in 0 of 3, 1 undecided, 1 not comparable");
  EXPECT_EQ(findings_of({"It was Monday"}).substr(0, 12), "## Findings\n");
  Cases never("It never rains");
  never.add(false);
  EXPECT_EQ(never.finish().verdict(), "does not hold");
  EXPECT_EQ(percent(0.1849), "18.5 %");
}

}  // namespace
}  // namespace dear::studies::statement_test
