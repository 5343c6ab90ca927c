#include "dear/cli/line_prefixer.h"

#include <random>

#include <gtest/gtest.h>

namespace dear::cli::line_prefixer_test {
namespace {

TEST(LinePrefixer, HoldsALineBackUntilItIsWhole) {
  LinePrefixer lines("[3] ");
  EXPECT_EQ(lines.feed("first\nsec"), "[3] first\n");
  EXPECT_EQ(lines.feed("ond"), "");
  EXPECT_EQ(lines.feed("\n\nlast"), "[3] second\n[3] \n");
  EXPECT_EQ(lines.finish(), "[3] last\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(LinePrefixer, CutsALineThatNeverEnds) {
  LinePrefixer lines("> ");
  const std::string endless(LinePrefixer::kLongestLine + 3, 'x');
  EXPECT_EQ(lines.feed(endless), "> " + endless.substr(3) + "\n");
  EXPECT_EQ(lines.finish(), "> xxx\n");
}

TEST(LinePrefixer, DoesNotDependOnHowBytesArrive) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> letter('a', 'h');
  for (int round = 0; round < 50; ++round) {
    std::string text;
    std::string expected = "| ";
    for (int i = 0; i < 200; ++i) {
      const auto next = static_cast<char>(letter(random));
      const char byte = next == 'a' ? '\n' : next;
      text += byte;
      expected += byte;
      expected += byte == '\n' ? "| " : "";
    }
    text += "z";
    expected += "z\n";

    LinePrefixer lines("| ");
    std::string actual;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = std::uniform_int_distribution<std::size_t>(1, 20)(random);
      actual += lines.feed(std::string_view(text).substr(at, length));
      at += length;
    }
    EXPECT_EQ(actual + lines.finish(), expected);
  }
}

}  // namespace
}  // namespace dear::cli::line_prefixer_test
