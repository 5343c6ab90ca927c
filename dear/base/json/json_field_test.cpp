#include "dear/base/json/json_field.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::json_field_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr JsonFormat kFormat = {.name = "dear-menu", .version = 2, .kind = "menu"};

Json parse(const std::string& text) { return parse_json_file(text, "m.json", kFormat); }

template <typename Read>
std::string refusal(const std::string& value, Read read) {
  const Json document = parse(R"({"format": "dear-menu", "version": 2, "dish": )" + value + "}");
  try {
    read(JsonField(document, "m.json").member("dish"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonFile, SaysWhatIsWrongWithItsFormat) {
  EXPECT_THAT([] { parse("[1"); }, ThrowsMessage<ConfigError>(StartsWith("m.json: parse error at line 1")));
  EXPECT_THAT([] { parse("[]"); },
              ThrowsMessage<ConfigError>(ContainsRegex("^m.json: not a menu: .*\"dear-menu\"")));
  EXPECT_THAT([] { parse(R"({"format": "dear-menu"})"); },
              ThrowsMessage<ConfigError>(StartsWith("m.json: version: missing")));
  EXPECT_THAT([] { parse(R"({"format": "dear-menu", "version": 3})"); },
              ThrowsMessage<ConfigError>(ContainsRegex("^m.json: version: found 3.* version 2")));
}

TEST(ParseJson, RefusesWhatNoFileNeeds) {
  const auto refusal_of = [](const std::string& text) -> std::string {
    try {
      parse_json(text, "m.json");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(refusal_of(nested(kMostDepth)), "");
  EXPECT_THAT(refusal_of(nested(kMostDepth + 1)), HasSubstr("64 others"));
  EXPECT_THAT(refusal_of(std::string(50'000, '{')), HasSubstr("64 others"));
  EXPECT_EQ(refusal_of(R"({"text": "[[[[\"{{{", "more": ")" + std::string(100, '[') + R"("})"), "");
  EXPECT_THAT(refusal_of(R"({"a": {"b": 1}, "c": {"b": 2}, "a": 3})"), HasSubstr("\"a\" stands twice"));
  EXPECT_EQ(refusal_of(R"([{"b": 1}, {"b": 2}])"), "");
  EXPECT_THAT(refusal_of(R"({"a\u0000b": 1})"), HasSubstr("control character"));
  EXPECT_THAT(refusal_of(R"(["a\u0000b"])"), HasSubstr("control character"));
  EXPECT_THAT(refusal_of(R"(["\u001b[31mred"])"),
              AllOf(HasSubstr("control character"), HasSubstr("\\u001b")));
  EXPECT_THAT(refusal_of("[1e999]"), HasSubstr("correct the JSON"));
  EXPECT_THAT(refusal_of(""), HasSubstr("parse error"));
  EXPECT_THAT(refusal_of("\x1f\x8b\x08"), HasSubstr("unpack it by gunzip"));
}

TEST(JsonFile, OlderVersionsAreReadWhereTheFormatSaysSo) {
  constexpr JsonFormat kLongKept = {.name = "dear-menu", .version = 4, .oldest = 3, .kind = "menu"};
  const auto parse_version = [&](int version) {
    const Json menu{{"format", "dear-menu"}, {"version", version}};
    return parse_json_file(menu.dump(), "m.json", kLongKept)["version"];
  };
  EXPECT_EQ(parse_version(3), 3);
  EXPECT_EQ(parse_version(4), 4);
  for (const int version : {2, 5}) {
    EXPECT_THAT([&] { parse_version(version); }, ThrowsMessage<ConfigError>(HasSubstr("versions 3 to 4")));
  }
}

TEST(JsonField, ReadsWhatIsThere) {
  const Json document = parse(
      R"({"format": "dear-menu", "version": 2, "dish": {"name": "soup", "price": 1.5, "parts": [3, 4], "left": -7, "hot": true}})");
  const JsonField dish = JsonField(document, "m.json").member("dish");
  EXPECT_NO_THROW(dish.expect_members({"name", "price", "parts"}, {"left", "right", "hot"}));
  EXPECT_TRUE(dish.has("left"));
  EXPECT_FALSE(dish.has("right"));
  EXPECT_EQ(dish.member("name").text(), "soup");
  EXPECT_EQ(dish.member("price").number(), 1.5);
  EXPECT_EQ(dish.member("price").number_from_0(), 1.5);
  EXPECT_EQ(dish.member("left").integer(), -7);
  EXPECT_TRUE(dish.member("hot").boolean());
  std::vector<std::uint32_t> parts;
  for (const JsonField& part : dish.member("parts").elements()) {
    parts.push_back(part.index());
  }
  EXPECT_THAT(parts, ElementsAre(3, 4));
}

TEST(JsonField, NamesThePlaceOfAMember) {
  const auto members = [](const JsonField& dish) { dish.expect_members({"name"}, {"price"}); };
  EXPECT_THAT(refusal("{}", members), StartsWith("m.json: dish.name: missing"));
  EXPECT_THAT(refusal(R"({"name": "", "salt": 1})", members),
              ContainsRegex("^m.json: dish.salt: unknown.* name, price"));
  EXPECT_THAT(refusal("[]", members), ContainsRegex("^m.json: dish: .*object.*array"));
}

TEST(JsonField, NamesThePlaceOfAnElement) {
  const auto second = [](const JsonField& dish) { static_cast<void>(dish.elements().at(1).text()); };
  EXPECT_THAT(refusal(R"(["a", null])", second), ContainsRegex("^m.json: dish.1.: .*string.*null"));
  EXPECT_THAT(refusal("7", second), ContainsRegex("^m.json: dish: .*array.*7"));
}

TEST(JsonField, TakesNoNumberForABoolean) {
  const auto boolean = [](const JsonField& dish) { static_cast<void>(dish.boolean()); };
  EXPECT_THAT(refusal("1", boolean), ContainsRegex("^m.json: dish: .*true or false.* 1"));
}

TEST(JsonField, RefusesNumbersOutOfRange) {
  const auto from_0 = [](const JsonField& dish) { static_cast<void>(dish.number_from_0()); };
  const auto integer = [](const JsonField& dish) { static_cast<void>(dish.integer()); };
  const auto ranks = [](const JsonField& dish) { static_cast<void>(dish.integer(1, 8)); };
  const auto index = [](const JsonField& dish) { static_cast<void>(dish.index()); };
  EXPECT_THAT(refusal("-1", from_0), ContainsRegex("^m.json: dish: .*number, 0 or more.* -1"));
  EXPECT_THAT(refusal("1.5", integer), ContainsRegex("^m.json: dish: .*integer.* 1.5"));
  EXPECT_THAT(refusal("9223372036854775808", integer),
              ContainsRegex("^m.json: dish: .*integer.* 9223372036854775808"));
  EXPECT_THAT(refusal("9", ranks), ContainsRegex("^m.json: dish: .*1 to 8.* 9"));
  EXPECT_THAT(refusal("18446744073709551615", ranks), ContainsRegex("^m.json: dish: .*1 to 8"));
  EXPECT_THAT(refusal("4294967296", index), ContainsRegex("^m.json: dish: .*index.* 4294967296"));
  EXPECT_THAT(refusal("true", index), ContainsRegex("^m.json: dish: .*index.*boolean"));
}

}  // namespace
}  // namespace dear::json_field_test
