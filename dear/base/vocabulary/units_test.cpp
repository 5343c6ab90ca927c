#include "dear/base/vocabulary/units.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::units_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ParseBytes, UnderstandsEveryUnit) {
  EXPECT_EQ(parse_bytes("512B"), 512);
  EXPECT_EQ(parse_bytes("3kB"), 3000);
  EXPECT_EQ(parse_bytes("3KB"), 3000);
  EXPECT_EQ(parse_bytes("100MB"), 100'000'000);
  EXPECT_EQ(parse_bytes("2GB"), 2'000'000'000);
  EXPECT_EQ(parse_bytes("64KiB"), 64 * kKiB);
  EXPECT_EQ(parse_bytes("25MiB"), 25 * kMiB);
  EXPECT_EQ(parse_bytes("1GiB"), kGiB);
}

TEST(ParseBytes, RoundsFractionsToTheNearestByte) {
  EXPECT_EQ(parse_bytes("1.5GiB"), kGiB + kGiB / 2);
  EXPECT_EQ(parse_bytes("0.5KiB"), 512);
  EXPECT_EQ(parse_bytes("0.1MiB"), 104'858);  // 104857.6
  EXPECT_EQ(parse_bytes("0.9B"), 1);
}

TEST(ParseBytes, IsExactUpToTheLargestSize) {
  EXPECT_EQ(parse_bytes("9007199254740993B"), 9'007'199'254'740'993);  // 2^53 + 1: no double holds it
  EXPECT_EQ(parse_bytes("9223372036854775807B"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_bytes("8589934591GiB"), 8'589'934'591 * kGiB);
}

TEST(ParseBytes, RefusesWhatDoesNotFit) {
  for (const char* text :
       {"9223372036854775808B", "8589934592GiB", "8589934592.0GiB", "99999999999999999999GB"}) {
    EXPECT_THAT([&] { parse_bytes(text); }, ThrowsMessage<ConfigError>(HasSubstr("below 2^63"))) << text;
  }
}

class RefusedBytes : public ::testing::TestWithParam<const char*> {};
TEST_P(RefusedBytes, NamesTheTextAndWhatWasExpected) {
  const std::string text = GetParam();
  EXPECT_THAT([&] { parse_bytes(text); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("'" + text + "'"), HasSubstr("such as 25MiB"))));
}
INSTANTIATE_TEST_SUITE_P(Texts, RefusedBytes,
                         ::testing::Values("", "25", "MiB", "-1MiB", "+1MiB", "0B", "0.4B", "0.0GiB",
                                           "25 MiB", " 25MiB", "25MiB ", "25MiBs", "25mib", "25Mb", "25M",
                                           "25b", "1e3B", "0x10B", "nanB", "infB", "1.B", ".5MiB", "1.2.3MiB",
                                           "1,5MiB", "25MiB,1MiB"));

TEST(ParseSeconds, IsTheDoubleNearestToTheDecimal) {
  EXPECT_EQ(parse_seconds("50us"), 50e-6);
  EXPECT_EQ(parse_seconds("1.5ms"), 1.5e-3);
  EXPECT_EQ(parse_seconds("2s"), 2.0);
  EXPECT_EQ(parse_seconds("800ns"), 800e-9);
  EXPECT_EQ(parse_seconds("0us"), 0.0);
}

class RefusedSeconds : public ::testing::TestWithParam<const char*> {};
TEST_P(RefusedSeconds, NamesTheTextAndWhatWasExpected) {
  const std::string text = GetParam();
  EXPECT_THAT([&] { parse_seconds(text); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("'" + text + "'"), HasSubstr("such as 50us"))));
}
INSTANTIATE_TEST_SUITE_P(Texts, RefusedSeconds,
                         ::testing::Values("", "5", "us", "-5us", "5 us", "5usx", "5min", "5US", "1e-3s",
                                           "infs"));

TEST(ParseBitsPerSecond, IsDecimal) {
  EXPECT_EQ(parse_bits_per_second("1gbit"), 1e9);
  EXPECT_EQ(parse_bits_per_second("100mbit"), 100e6);
  EXPECT_EQ(parse_bits_per_second("2.5gbit"), 2.5e9);
  EXPECT_EQ(parse_bits_per_second("800kbit"), 800e3);
  EXPECT_EQ(parse_bits_per_second("9600bit"), 9600.0);
}

TEST(ParseBitsPerSecond, TakesEveryWayOfWritingARate) {
  for (const char* const text :
       {"1Gbit", "1gbit/s", "1Gbps", "1gbps", "1Gb/s", "1000Mb/s", "125MB/s", "0.125GB/s", "125000kB/s"})
    EXPECT_EQ(parse_bits_per_second(text), 1e9) << text;
  EXPECT_EQ(parse_bits_per_second("1MiB/s"), 8.0 * kMiB);
  EXPECT_EQ(parse_bits_per_second("1B/s"), 8);
}

class RefusedBitRate : public ::testing::TestWithParam<const char*> {};
TEST_P(RefusedBitRate, NamesTheTextAndWhatWasExpected) {
  const std::string text = GetParam();
  EXPECT_THAT([&] { parse_bits_per_second(text); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("'" + text + "'"), HasSubstr("such as 1gbit"))));
}
INSTANTIATE_TEST_SUITE_P(Texts, RefusedBitRate,
                         ::testing::Values("", "1", "gbit", "0gbit", "-1gbit", "1gb", "1GB", "1mB/s", "1MBps",
                                           "1 gbit"));

TEST(ParseBitsPerSecond, RefusesANumberThatNoDoubleHolds) {
  EXPECT_THROW(parse_bits_per_second(std::string(400, '9') + "bit"), ConfigError);
  EXPECT_THROW(parse_bits_per_second(std::string(308, '9') + "gbit"), ConfigError);
}

TEST(FormatBytes, HasThreeDigitsAndNoTrailingZeros) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(17), "17 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(25 * kMiB), "25 MiB");
  EXPECT_EQ(format_bytes(1000 * kKiB), "1000 KiB");
  EXPECT_EQ(format_bytes(kMiB - 1), "1 MiB");  // not 1024 KiB
  EXPECT_EQ(format_bytes(5000 * kGiB), "5000 GiB");
  EXPECT_EQ(format_bytes(-1536), "-1.5 KiB");
}

TEST(FormatSeconds, ChoosesTheUnit) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(1.2345), "1.23 s");
  EXPECT_EQ(format_seconds(0.0456), "45.6 ms");
  EXPECT_EQ(format_seconds(7.89e-6), "7.89 us");
  EXPECT_EQ(format_seconds(12e-9), "12 ns");
  EXPECT_EQ(format_seconds(0.25e-9), "0.25 ns");
  EXPECT_EQ(format_seconds(1234), "1234 s");
  EXPECT_EQ(format_seconds(-0.002), "-2 ms");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "inf s");
}

TEST(FormatSeconds, RoundsUpIntoTheNextUnit) {
  EXPECT_EQ(format_seconds(0.9996), "1 s");  // not 1000 ms
  EXPECT_EQ(format_seconds(999.6e-6), "1 ms");
  EXPECT_EQ(format_seconds(0.9994), "999 ms");
}

}  // namespace
}  // namespace dear::units_test
