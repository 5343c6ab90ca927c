#include "dear/base/archive/pickle.h"

#include <cstdint>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::archive::pickle_test {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& bytes) {
  try {
    static_cast<void>(unpickle(bytes, "the file"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Value example() {
  Value value;
  value.set("none", Value());
  value.set("yes", true);
  value.set("small", -7);
  value.set("large", std::numeric_limits<std::int64_t>::min());
  value.set("real", 0.1);
  value.set("text", std::string("a\0b", 3));
  value.set("list", Value::List{1, "two", Value::Tuple{{3.0, false}}});
  value.set(5, Value::Dict());
  value.set("tensor", TensorRecord{.key = "0",
                                   .storage = "FloatStorage",
                                   .storage_elements = 6,
                                   .offset = 0,
                                   .sizes = {2, 3},
                                   .strides = {3, 1}});
  return value;
}

TEST(Pickle, GivesBackWhatWasWritten) { EXPECT_EQ(unpickle(pickle(example()), "the file"), example()); }

TEST(Pickle, FindsValuesByTheirKeys) {
  const Value value = example();
  EXPECT_EQ(value.at<bool>("yes", "the file"), true);
  EXPECT_NE(value.find(5), nullptr);
  EXPECT_EQ(value.find("five"), nullptr);
  EXPECT_THROW(static_cast<void>(value.at<bool>("text", "the file")), ConfigError);
}

TEST(Pickle, ThatIsCutOrDamagedIsRefusedOrAnotherValue) {
  const std::string good = pickle(example());
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_THAT(refusal(good.substr(0, size)), HasSubstr("the file")) << size;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int change : {1, 0x55, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ change);
      static_cast<void>(refusal(bad));
    }
  }
}

TEST(Pickle, RunsNothing) {
  const Value value = unpickle(
      "\x80\x02"
      "cos\nsystem\n(\x88tR.",
      "the file");
  ASSERT_NE(value.get<Opaque>(), nullptr);
  EXPECT_EQ(value.get<Opaque>()->what, "os.system");
  EXPECT_THAT(refusal("\x80\x02i"), HasSubstr("instruction"));
}

TEST(Pickle, ThatNestsOrRepeatsWithoutEndIsRefused) {
  std::string deep = "\x80\x02";
  for (int i = 0; i < 100'000; ++i) deep += ']';
  for (int i = 0; i < 100'000; ++i) deep += 'a';
  EXPECT_THAT(refusal(deep), HasSubstr("nests"));
  std::string wide = "\x80\x02Nq";
  wide += '\0';
  for (char i = 1; i < 64; ++i)
    wide += std::string("h") + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1) + "\x86q" + i;
  EXPECT_THAT(refusal(wide + "."), HasSubstr("repeats"));
}

// Few values, each of many bytes: 200 KB would fill 10 GB.
TEST(Pickle, ThatRepeatsALongTextWithoutEndIsRefused) {
  std::string text = "\x80\x02X";
  text += std::string("\xa0\x86\x01\x00", 4) + std::string(100'000, 't') + "q" + '\0';
  std::string recalled = text;
  for (int i = 0; i < 50'000; ++i) recalled += std::string("h\0", 2);
  EXPECT_THAT(refusal(recalled), HasSubstr("repeats"));
  std::string remembered = text;
  for (char i = 0; remembered.size() < 200'000; ++i)
    remembered += std::string("r") + i + static_cast<char>(remembered.size() / 500) + std::string("\0\0", 2);
  EXPECT_THAT(refusal(remembered), HasSubstr("repeats"));
}

}  // namespace
}  // namespace dear::archive::pickle_test
