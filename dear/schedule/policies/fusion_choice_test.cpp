#include "dear/schedule/policies/fusion_choice.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::fusion_choice_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Kind = FusionChoice::Kind;

TEST(FusionChoice, ReadsEachForm) {
  struct Case {
    std::string written;
    Kind kind;
    std::string fusion;
  };
  for (const Case& one :
       {Case{"auto", Kind::tuned, "25MiB"}, Case{"auto=64KiB", Kind::tuned, "64KiB"},
        Case{"auto=layer", Kind::tuned, "layer"}, Case{"planned", Kind::planned, "25MiB"},
        Case{"all", Kind::given, "all"}, Case{"first=1MiB,25MiB", Kind::given, "first=1MiB,25MiB"}}) {
    const FusionChoice rule = FusionChoice::of_training(one.written);
    EXPECT_EQ(rule.kind, one.kind) << one.written;
    EXPECT_EQ(rule.fusion.text(), one.fusion) << one.written;
    EXPECT_EQ(rule.text(), one.written);
  }
  EXPECT_EQ(FusionChoice().text(), "auto");
}

TEST(FusionChoice, NamesAllFormsWhereItKnowsNone) {
  for (const char* const written : {"", "autoo", "auto=", "auto=7", "auto=auto", "auto=planned", "Planned"}) {
    EXPECT_THAT(
        [&] { FusionChoice::of_training(written); },
        ThrowsMessage<ConfigError>(AllOf(HasSubstr("25MiB"), HasSubstr("planned, auto or auto=SIZE"))))
        << written;
  }
}

}  // namespace
}  // namespace dear::fusion_choice_test
