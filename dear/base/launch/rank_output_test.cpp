#include "dear/base/launch/rank_output.h"

#include <random>

#include <gtest/gtest.h>

namespace dear::launch::rank_output_test {
namespace {

constexpr SteadyTime kNow{};
constexpr SteadyTime kLater = kNow + RankOutput::kHeldBack;

std::string taken(RankOutput& output) {
  std::string text(output.pending());
  output.written(text.size());
  return text;
}

TEST(RankOutput, HoldsALineBackUntilItIsWhole) {
  RankOutput output({"[3] "});
  output.feed(0, "first\nsec", kNow);
  EXPECT_EQ(taken(output), "[3] first\n");
  output.feed(0, "ond", kNow);
  EXPECT_EQ(taken(output), "");
  output.feed(0, "\n\nlast", kNow);
  EXPECT_EQ(taken(output), "[3] second\n[3] \n");
  output.finish();
  EXPECT_EQ(taken(output), "[3] last\n");
  output.finish();
  EXPECT_EQ(taken(output), "");
}

TEST(RankOutput, ACarriageReturnEndsALine) {
  RankOutput output({"> "});
  output.feed(0, "10 %\r20 %\r", kNow);
  EXPECT_EQ(taken(output), "> 10 %\r");
  EXPECT_EQ(output.show_held_back(kNow), kLater);
  EXPECT_EQ(output.show_held_back(kLater), std::nullopt);
  EXPECT_EQ(taken(output), "> 20 %\r");
  output.feed(0, "done\r\n", kLater);
  EXPECT_EQ(taken(output), "> done\r\n");
}

TEST(RankOutput, WhatHasNoEndIsShownAfterAWhileAndGoesOn) {
  RankOutput output({"0: ", "1: "});
  output.feed(0, "Continue? ", kNow);
  EXPECT_EQ(output.show_held_back(kNow), kLater);
  EXPECT_EQ(taken(output), "");
  EXPECT_EQ(output.show_held_back(kLater), std::nullopt);
  EXPECT_EQ(taken(output), "0: Continue? ");
  output.feed(0, "yes\n", kLater);
  EXPECT_EQ(taken(output), "yes\n");
}

TEST(RankOutput, LinesOfTwoRanksNeverMix) {
  RankOutput output({"0: ", "1: "});
  output.feed(0, "one ", kNow);
  static_cast<void>(output.show_held_back(kLater));
  output.feed(1, "other\n", kLater);
  output.feed(0, "more\n", kLater);
  EXPECT_EQ(taken(output), "0: one \n1: other\n0: more\n");
  output.feed(0, "50 %\r ", kLater);
  output.feed(1, "other\n", kLater);
  output.finish();
  EXPECT_EQ(taken(output), "0: 50 %\r\n1: other\n0:  \n");
}

TEST(RankOutput, CutsALineThatNeverEnds) {
  RankOutput output({"> "});
  const std::string endless(RankOutput::kLongestLine + 3, 'x');
  output.feed(0, endless, kNow);
  output.finish();
  EXPECT_EQ(taken(output), "> " + endless.substr(3) + "\n> xxx\n");
}

TEST(RankOutput, DoesNotDependOnHowBytesArrive) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> letter('a', 'h');
  for (int round = 0; round < 50; ++round) {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      const auto next = static_cast<char>(letter(random));
      text += next == 'a' ? '\n' : next == 'b' ? '\r' : next;
    }
    RankOutput at_once({"| "});
    at_once.feed(0, text, kNow);
    at_once.finish();
    RankOutput in_parts({"| "});
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = std::uniform_int_distribution<std::size_t>(1, 20)(random);
      in_parts.feed(0, std::string_view(text).substr(at, length), kNow);
      at += length;
    }
    in_parts.finish();
    EXPECT_EQ(in_parts.pending(), at_once.pending());
  }
}

}  // namespace
}  // namespace dear::launch::rank_output_test
