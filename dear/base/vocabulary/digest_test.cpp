#include "dear/base/vocabulary/digest.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace dear::digest_test {
namespace {

// A plain FNV-1a over bytes, against the published vectors, so that the class can be checked against it.
std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : bytes) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

TEST(Digest, IsFnv1aOverLittleEndianValues) {
  ASSERT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8c);  // from the algorithm's home page
  ASSERT_EQ(fnv1a("foobar"), 0x85944171f73967e8);
  EXPECT_EQ(Digest().value(), fnv1a(""));
  EXPECT_EQ(Digest().add(0x0102030405060708).value(), fnv1a("\x08\x07\x06\x05\x04\x03\x02\x01"));
  using namespace std::string_view_literals;
  EXPECT_EQ(Digest().add("ab").value(), fnv1a("\2\0\0\0\0\0\0\0ab"sv));
}

TEST(Digest, SeesOrderBoundariesAndEveryByte) {
  const std::set<std::uint64_t> values{Digest().value(),
                                       Digest().add(0).value(),
                                       Digest().add(0).add(0).value(),
                                       Digest().add("").value(),
                                       Digest().add("ab").add("c").value(),
                                       Digest().add("a").add("bc").value(),
                                       Digest().add("abc").value(),
                                       Digest().add(1).add(2).value(),
                                       Digest().add(2).add(1).value(),
                                       Digest().add(1ULL << 63).value()};
  EXPECT_EQ(values.size(), 9U);  // nine, because "" adds its length, which is the value 0
}

TEST(Digest, HexHasSixteenDigits) {
  EXPECT_EQ(Digest().hex(), "cbf29ce484222325");
  for (std::uint64_t i = 0; i < 64; ++i) EXPECT_EQ(Digest().add(i).hex().size(), 16U);
}

}  // namespace
}  // namespace dear::digest_test
