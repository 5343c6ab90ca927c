#include "dear/comm/shm/copy.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace dear::backends::copy_test {
namespace {

constexpr std::byte kUntouched{0xee};

std::vector<std::byte> numbered(std::int64_t bytes) {
  std::vector<std::byte> values(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 7 + i / 251);
  return values;
}

class Copy : public ::testing::TestWithParam<Stores> {};

// Around every length at which a copy is done another way, wherever it begins.
TEST_P(Copy, WritesWhatItIsGivenAndNothingElse) {
  for (const std::int64_t bytes : {0, 1, 63, 64, 65, 4096, 65535, 65536, 65599, 300001}) {
    for (const std::int64_t from : {0, 1, 60}) {
      for (const std::int64_t to : {0, 1, 4, 63}) {
        const std::vector<std::byte> source = numbered(from + bytes);
        std::vector<std::byte> target(static_cast<std::size_t>(to + bytes + 64), kUntouched);
        copy(target.data() + to, source.data() + from, bytes, GetParam());
        const auto copied = static_cast<std::size_t>(bytes);
        ASSERT_TRUE(std::equal(source.begin() + from, source.end(), target.begin() + to))
            << bytes << " bytes from " << from << " to " << to;
        const auto untouched = [&](std::size_t begin, std::size_t end) {
          for (std::size_t i = begin; i < end; ++i) {
            if (target[i] != kUntouched) return false;
          }
          return true;
        };
        ASSERT_TRUE(untouched(0, static_cast<std::size_t>(to)));
        ASSERT_TRUE(untouched(static_cast<std::size_t>(to) + copied, target.size()));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Copy, ::testing::Values(Stores::cached, Stores::streamed), [](const auto& info) {
  return info.param == Stores::cached ? "Cached" : "Streamed";
});

// No cache holds as much as the second, and any as much as the first.
TEST(StoresFor, AreStreamedWhereTheCacheIsTooSmall) {
  EXPECT_EQ(stores_for(4096), Stores::cached);
  EXPECT_EQ(stores_for(std::numeric_limits<std::int64_t>::max()), Stores::streamed);
}

}  // namespace
}  // namespace dear::backends::copy_test
