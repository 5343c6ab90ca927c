#include "dear/systems/train_command/model_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::train_command::model_input_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  try {
    parse_model_input(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "taken";
}

TEST(ModelInput, HasSizesAndAType) {
  const ModelInput image = parse_model_input("8x3x224x224");
  EXPECT_THAT(image.sizes, ElementsAre(8, 3, 224, 224));
  EXPECT_EQ(image.dtype, "float32");
  const ModelInput words = parse_model_input("8x64:int64");
  EXPECT_THAT(words.sizes, ElementsAre(8, 64));
  EXPECT_EQ(words.dtype, "int64");
  EXPECT_EQ(words.text, "8x64:int64");
  EXPECT_THAT(parse_model_input("5").sizes, ElementsAre(5));
  for (const std::string_view name : input_dtypes())
    EXPECT_EQ(parse_model_input("2:" + std::string(name)).dtype, name);
}

TEST(ModelInput, RefusesWhatIsNoShape) {
  for (const std::string text :
       {"", ":int64", "x", "8x", "x8", "8xx3", "8,3", "8x-3", "-8", "8 x3", "8x3 ", "eight", "8X3", "1.5x2"})
    EXPECT_THAT(refusal_of(text), HasSubstr("'" + text + "' is no shape")) << text;
}

TEST(ModelInput, RefusesNothingAndTooMuch) {
  EXPECT_THAT(refusal_of("8x0"), HasSubstr("'8x0' has no elements"));
  for (const std::string text : {"99999999999999999999", "65536x65536x65536x65536", "4294967296x131072"})
    EXPECT_THAT(refusal_of(text), HasSubstr("too many elements")) << text;
  EXPECT_EQ(refusal_of("4294967296x65536"), "taken");
}

TEST(ModelInput, RefusesOtherTypes) {
  for (const std::string text : {"8:", "8:fp8", "8:int64:int64", "8:Int64"})
    EXPECT_THAT(refusal_of(text),
                HasSubstr("there is no type '" + text.substr(2) + "'; choose one of float32"))
        << text;
}

}  // namespace
}  // namespace dear::train_command::model_input_test
