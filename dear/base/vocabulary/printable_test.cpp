#include "dear/base/vocabulary/printable.h"

#include <gtest/gtest.h>

namespace dear::printable_test {
namespace {

TEST(Printable, LeavesWhatATerminalShows) {
  for (const char* const text : {"", "layer1.weight", "caf\u00e9 \u4e2d\u6587 \U0001f600"}) {
    EXPECT_TRUE(is_printable(text));
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\x1b[31mred\r\n\x7f"), "a\\x1b[31mred\\x0d\\x0a\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u009b31m"), "\\xc2\\x9b31m");  // CSI in one character
  EXPECT_FALSE(is_printable("a\tb"));
}

TEST(Printable, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
}

TEST(Shortened, CutsBetweenCharacters) {
  EXPECT_EQ(shortened("layer", 5), "layer");
  EXPECT_EQ(shortened("layers", 5), "layer...");
  EXPECT_EQ(shortened("caf\u00e9s", 4), "caf...");
}

}  // namespace
}  // namespace dear::printable_test
