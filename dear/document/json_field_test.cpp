#include "dear/document/json_field.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"

namespace dear::json_field_test {
namespace {

using ::testing::ElementsAre;
using ::testing::StrEq;
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
  EXPECT_THAT([] { parse("[1"); },
              ThrowsMessage<ConfigError>(::testing::HasSubstr("m.json: parse error at line 1")));
  EXPECT_THAT([] { parse("[]"); },
              ThrowsMessage<ConfigError>(
                  StrEq("m.json: not a menu: it must be a JSON object with \"format\": \"dear-menu\"")));
  EXPECT_THAT([] { parse(R"({"format": "dear-menu"})"); },
              ThrowsMessage<ConfigError>(StrEq("m.json: version: missing: add \"version\": 2")));
  EXPECT_THAT([] { parse(R"({"format": "dear-menu", "version": 3})"); },
              ThrowsMessage<ConfigError>(
                  ::testing::HasSubstr("m.json: version: found 3, but this build reads version 2: ")));
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
    EXPECT_THAT([&] { parse_version(version); },
                ThrowsMessage<ConfigError>(::testing::HasSubstr("this build reads versions 3 to 4: ")));
  }
}

TEST(JsonField, ReadsWhatIsThere) {
  const Json document = parse(
      R"({"format": "dear-menu", "version": 2, "dish": {"name": "soup", "price": 1.5, "parts": [3, 4], "left": -7}})");
  const JsonField dish = JsonField(document, "m.json").member("dish");
  EXPECT_NO_THROW(dish.expect_members({"name", "price", "parts"}, {"left", "right"}));
  EXPECT_TRUE(dish.has("left"));
  EXPECT_FALSE(dish.has("right"));
  EXPECT_EQ(dish.member("name").text(), "soup");
  EXPECT_EQ(dish.member("price").number(), 1.5);
  EXPECT_EQ(dish.member("price").number_from_0(), 1.5);
  EXPECT_EQ(dish.member("left").integer(), -7);
  std::vector<std::uint32_t> parts;
  for (const JsonField& part : dish.member("parts").elements()) {
    parts.push_back(part.index());
  }
  EXPECT_THAT(parts, ElementsAre(3, 4));
}

TEST(JsonField, NamesThePlaceOfAMember) {
  const auto members = [](const JsonField& dish) { dish.expect_members({"name"}, {"price"}); };
  EXPECT_EQ(refusal("{}", members), "m.json: dish.name: missing: add it");
  EXPECT_EQ(refusal(R"({"name": "", "salt": 1})", members),
            "m.json: dish.salt: unknown: expected only name, price");
  EXPECT_EQ(refusal("[]", members), "m.json: dish: expected an object, found an array");
}

TEST(JsonField, NamesThePlaceOfAnElement) {
  const auto second = [](const JsonField& dish) { static_cast<void>(dish.elements().at(1).text()); };
  EXPECT_EQ(refusal(R"(["a", null])", second), "m.json: dish[1]: expected a string, found null");
  EXPECT_EQ(refusal("7", second), "m.json: dish: expected an array, found 7");
}

TEST(JsonField, RefusesNumbersOutOfRange) {
  const auto from_0 = [](const JsonField& dish) { static_cast<void>(dish.number_from_0()); };
  const auto integer = [](const JsonField& dish) { static_cast<void>(dish.integer()); };
  const auto ranks = [](const JsonField& dish) { static_cast<void>(dish.integer(1, 8)); };
  const auto index = [](const JsonField& dish) { static_cast<void>(dish.index()); };
  EXPECT_EQ(refusal("-1", from_0), "m.json: dish: expected a number, 0 or more, found -1");
  EXPECT_EQ(refusal("1.5", integer), "m.json: dish: expected an integer, found 1.5");
  EXPECT_EQ(refusal("9223372036854775808", integer),
            "m.json: dish: expected an integer, found 9223372036854775808");
  EXPECT_EQ(refusal("9", ranks), "m.json: dish: expected a whole number from 1 to 8, found 9");
  EXPECT_EQ(refusal("18446744073709551615", ranks).substr(0, 50),
            "m.json: dish: expected a whole number from 1 to 8,");
  EXPECT_EQ(refusal("4294967296", index), "m.json: dish: expected an index from 0, found 4294967296");
  EXPECT_EQ(refusal("true", index), "m.json: dish: expected an index from 0, found a boolean");
}

}  // namespace
}  // namespace dear::json_field_test
