#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/reduction.h"
#include "dear/comm/group/buffer.h"
#include "dear/comm/group/shard.h"

// What the suite puts into vectors, and what it looks for in them.
namespace dear::comm::testing {

double load(DType dtype, const std::byte* at);
void store(DType dtype, std::byte* at, double value);

// Small whole numbers: every element type holds them and their sums exactly. They repeat after kPeriod
// elements, and so does what is made of them.
inline constexpr std::int64_t kPeriod = 11;
inline double value_of(int rank, std::int64_t i) { return static_cast<double>((i * 7 + rank * 3) % kPeriod); }
// What `ranks` of them give, as an element of the type.
double expected(DType dtype, Reduction reduction, int ranks, std::int64_t i);

// value_of(rank, i) in element i.
void fill(const View& view, int rank);

// Whether [begin, end) of the view is what `expected_at` says of its elements, which repeats.
template <typename Expected>
void expect_range(const View& view, Range range, const std::string& what, const Expected& expected_at) {
  const std::int64_t element = size_of(view.dtype);
  const std::byte* const data = view.buffer.data() + view.offset_bytes;
  const auto expect = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      ASSERT_EQ(load(view.dtype, data + i * element), expected_at(i))
          << what << ", element " << i << " of " << view.count << " " << name_of(view.dtype);
    }
  };
  const std::int64_t second = std::min(range.begin + kPeriod, range.end);
  expect(range.begin, second);
  // One by one only where there is something to say.
  if (std::memcmp(data + range.begin * element, data + second * element,
                  static_cast<std::size_t>((range.end - second) * element)) != 0) {
    expect(second, range.end);
  }
}

template <typename Expected>
void expect_elements(const View& view, const std::string& what, const Expected& expected_at) {
  expect_range(view, {.begin = 0, .end = view.count}, what, expected_at);
}

// Each rank's shard is as `expected_at(rank, i)` says.
template <typename Expected>
void expect_shards(const View& view, int ranks, const std::string& what, const Expected& expected_at) {
  for (int rank = 0; rank < ranks; ++rank) {
    expect_range(view, shard_of(view.count, view.dtype, ranks, rank), what,
                 [&](std::int64_t i) { return expected_at(rank, i); });
  }
}

}  // namespace dear::comm::testing
