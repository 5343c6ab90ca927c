#include "dear/tools/options/table.h"

#include <gtest/gtest.h>

namespace dear::cli::table_test {
namespace {

TEST(Table, AlignsWordsLeftAndNumbersRight) {
  Table table({"policy", "network", "iteration"}, {.left_columns = 2});
  table.add({"serial", "1gbit", "12.5 ms"});
  table.add({"dear-replicated", "10gbe", "3 ms"});
  EXPECT_EQ(table.to_string(),
            "policy           network  iteration\n"
            "serial           1gbit      12.5 ms\n"
            "dear-replicated  10gbe         3 ms\n");
}

TEST(Table, LeavesNoBlanksAtTheEndOfALine) {
  Table table({"name", "note"}, {.left_columns = 2});
  table.add({"a", "long note"});
  table.add({"b", ""});
  EXPECT_EQ(table.to_string(), "name  note\na     long note\nb\n");
}

}  // namespace
}  // namespace dear::cli::table_test
