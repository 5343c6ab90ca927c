#include <algorithm>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/tools/options/help.h"
#include "dear/tools/options/manual.h"
#include "dear/tools/options/refusals.h"

namespace dear::usage_test {
namespace {

using namespace cli;
using ::testing::HasSubstr;

// `cook` with `cook bake`.
class Cook {
 public:
  Cook() {
    app_.set_help_flag("-h,--help", "Print this");
    app_.formatter(std::make_shared<HelpFormatter>(60));
    app_.require_subcommand(1);
    CLI::App* const bake = app_.add_subcommand("bake", "Bake a cake");
    bake->add_option("--minutes", minutes_,
                     "How long the cake is in an oven that was heated before; default: 40")
        ->check(CLI::Range(1, 90))
        ->type_name("N");
    bake->add_option("--kind", kind_, "What cake")
        ->check(CLI::IsMember({"plum", "lemon"}))
        ->required()
        ->type_name("NAME");
    bake->add_option("--out", out_, "Write the recipe to FILE")->type_name("FILE");
    bake->add_flag("--icing", icing_, "With icing");
    refuse_values_that_are_none(app_);
  }
  std::string refusal(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    try {
      app_.parse(words);
    } catch (const CLI::ParseError& error) {
      return sentence_of(error, chosen(app_));
    }
    return "";
  }
  CLI::App& app() { return app_; }

 private:
  CLI::App app_{"Cook", "cook"};
  int minutes_ = 40;
  std::string kind_, out_;
  bool icing_ = false;
};

TEST(Help, SaysLimitsAndDefaultsInWordsAndFitsTheWidth) {
  const std::string text = Cook().app().get_subcommand("bake")->help();
  EXPECT_THAT(text, HasSubstr("--minutes N"));
  EXPECT_THAT(text, HasSubstr("(required)"));
  EXPECT_THAT(text, HasSubstr("to 90 (default: 40)"));
  EXPECT_EQ(text.find("INT in"), std::string::npos);
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    EXPECT_LE(text.find('\n', begin) - begin, 60U) << text.substr(begin, 60);
}

TEST(Help, KeepsIndentedLinesOfAText) {
  EXPECT_EQ(reflowed("one two\nthree\n  as it is\n\nfour", 9), "one two\nthree\n  as it is\n\nfour\n");
}

TEST(Refusal, NamesTheOptionAndWhatWasMeant) {
  EXPECT_THAT(Cook().refusal({"bake", "--kind", "plum", "--minuts", "3"}),
              HasSubstr("--minuts, did you mean --minutes?"));
  EXPECT_THAT(Cook().refusal({"bake", "--minuts", "3"}), HasSubstr("--minutes"));
  EXPECT_THAT(Cook().refusal({"bak"}), HasSubstr("did you mean bake?"));
  EXPECT_THAT(Cook().refusal({"bake", "--kind", "plumm"}), HasSubstr("did you mean plum?"));
  EXPECT_THAT(Cook().refusal({}), HasSubstr("give one of bake"));
  EXPECT_THAT(Cook().refusal({"bake", "--kind", "plum", "more"}), HasSubstr("'more'"));
}

TEST(Refusal, OfAValueSaysWhatItMustBe) {
  EXPECT_EQ(Cook().refusal({"bake", "--kind", "plum"}), "");
  EXPECT_THAT(Cook().refusal({"bake", "--kind", "plum", "--out", ""}),
              HasSubstr("--out is empty: give FILE"));
  EXPECT_THAT(Cook().refusal({"bake", "--kind", "plum", "--minutes", "91"}), HasSubstr("1 to 90"));
  EXPECT_THAT(Cook().refusal({"bake", "--kind", "plum", "--minutes", std::string(30, '9')}),
              HasSubstr("--minutes"));
  EXPECT_THAT(Cook().refusal({"bake", "--kind"}), HasSubstr("--kind needs a value"));
}

TEST(Manual, HasCommandsAndOptions) {
  Cook cook;
  const std::string page = manual_page(help_of(cook.app()), "1.2");
  for (const char* const part : {".TH DEAR 1", ".SS cook bake", "\\-\\-minutes", "Bake a cake"})
    EXPECT_THAT(page, HasSubstr(part));
}

TEST(Completion, IsOfTwoShells) {
  Cook cook;
  const CommandHelp help = help_of(cook.app());
  for (const char* const shell : {"bash", "zsh"}) {
    const std::string script = completion_script(help, {{"--kind", {"plum", "lemon"}}}, shell);
    EXPECT_THAT(script, HasSubstr("'cook bake --kind') "));
    EXPECT_THAT(script, HasSubstr("plum lemon"));
    EXPECT_THAT(script, HasSubstr("'cook bake --out') "));
  }
  EXPECT_THROW(completion_script(help, {}, "fish"), ConfigError);
}

}  // namespace
}  // namespace dear::usage_test
