// A bucket that is reduced as rows ends as the dense reduction leaves it, to the bit.

#include "dear/comm/buckets/sparse_bucket.h"

#include <cstring>
#include <future>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/comm/buckets/bucket_wire.h"
#include "dear/comm/buckets/layout.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::buckets::sparse_bucket_test {
namespace {

constexpr std::int64_t kRows = 120;

struct Shape {
  DType dtype;
  std::int64_t width;   // elements of a row
  std::int64_t offset;  // of the tensor in the bucket
};

// The bits of a rank's gradient.
enum class Kind : std::uint8_t { few_rows, no_rows, all_rows, unused, negative_zeros };

std::vector<std::byte> gradient_of(Kind kind, const Shape& shape, int rank, std::uint32_t seed) {
  const std::int64_t size = size_of(shape.dtype), row = shape.width * size;
  std::vector<std::byte> bytes(static_cast<std::size_t>(kRows * row));
  std::mt19937 random(1000 * seed + static_cast<std::uint32_t>(rank));
  const auto write = [&](std::int64_t element) {
    const double value = static_cast<double>(static_cast<int>(random() % 2001) - 1000) / 64;
    std::byte* const at = bytes.data() + element * size;
    const auto wide = static_cast<float>(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &wide, sizeof bits);
    if (shape.dtype == DType::f64) std::memcpy(at, &value, sizeof value);
    if (shape.dtype == DType::f32) std::memcpy(at, &wide, sizeof wide);
    if (shape.dtype == DType::bf16) std::memcpy(at, reinterpret_cast<std::byte*>(&bits) + 2, 2);
    if (shape.dtype == DType::f16) {  // any finite ones
      const auto half = static_cast<std::uint16_t>((random() & 0x83FFU) | 0x3C00U);
      std::memcpy(at, &half, sizeof half);
    }
  };
  const auto negate_zero = [&](std::int64_t element) {
    bytes[static_cast<std::size_t>((element + 1) * size - 1)] = std::byte{0x80};
  };
  for (std::int64_t r = 0; r < kRows; ++r) {
    const bool there = kind == Kind::all_rows || (kind == Kind::few_rows && random() % 12 == 0);
    for (std::int64_t i = r * shape.width; i < (r + 1) * shape.width; ++i) {
      if (there) write(i);
      if (kind == Kind::unused || (kind == Kind::negative_zeros && r == 5)) negate_zero(i);
    }
  }
  return bytes;
}

struct Result {
  std::vector<std::byte> dense, sparse;  // the buffers afterwards, as far as the collective says
  double dense_bytes = 0, sparse_bytes = 0;
  SparseBucket::Choice choice;
};

// Each rank reduces its gradient twice: in a bucket that is dense, and in one that may be sparse.
std::vector<Result> reduce(Collective collective, const Shape& shape, const std::vector<Kind>& kinds,
                           std::uint32_t seed) {
  const int ranks = static_cast<int>(kinds.size());
  auto backends = backends::testing::make_shm_threads(ranks);
  std::vector<Result> results(kinds.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const Group group(std::move(backends[r]), {});
      const std::int64_t size = size_of(shape.dtype), unit = unit_of(shape.dtype, ranks),
                         elements = kRows * shape.width,
                         padded = (shape.offset + elements + unit - 1) / unit * unit;
      Result& result = results[r];
      const std::vector<std::byte> mine = gradient_of(kinds[r], shape, r, seed);
      for (const bool sparse : {false, true}) {
        const View gradients{.buffer = group.allocate(padded * size), .count = padded, .dtype = shape.dtype};
        BucketWire::Flat flat{
            .parameters = gradients, .gradients = gradients, .bucket_bytes = elements * size};
        if (sparse)
          flat.sparse = std::make_shared<SparseBucket>(
              gradients,
              SparseBucket::Tensor{.elements = {shape.offset, shape.offset + elements}, .rows = kRows}, group,
              [&](const SparseBucket::Choice& choice) { result.choice = choice; });
        std::promise<conductor::StepEnd> ended;
        BucketWire wire(group, {flat}, [&](const conductor::StepEnd& end) { ended.set_value(end); }, {});
        std::memcpy(gradients.buffer.data() + shape.offset * size, mine.data(), mine.size());
        wire.start({.step = 0, .iteration = 0},
                   {.work = Communicate{collective, Payload::gradients, 0, kWholeBucket}, .lane = 0});
        EXPECT_FALSE(ended.get_future().get().error);
        const Range own =
            collective == Collective::all_reduce ? Range{0, padded} : shard_of(padded, shape.dtype, ranks, r);
        (sparse ? result.sparse : result.dense)
            .assign(gradients.buffer.data() + own.begin * size, gradients.buffer.data() + own.end * size);
        (sparse ? result.sparse_bytes : result.dense_bytes) = wire.sent_bytes();
        group.barrier().wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

class Sparse : public ::testing::TestWithParam<std::tuple<Collective, Shape>> {};
INSTANTIATE_TEST_SUITE_P(
    Collectives, Sparse,
    ::testing::Combine(::testing::Values(Collective::reduce_scatter, Collective::all_reduce),
                       ::testing::Values(Shape{DType::f32, 16, 0}, Shape{DType::f32, 5, 48},
                                         Shape{DType::f64, 3, 0}, Shape{DType::bf16, 20, 0},
                                         Shape{DType::f16, 7, 32})));

TEST_P(Sparse, IsTheDenseReductionToTheBit) {
  const auto& [collective, shape] = GetParam();
  using enum Kind;
  std::uint32_t seed = 0;
  for (const auto& kinds : std::vector<std::vector<Kind>>{{few_rows, few_rows},
                                                          {few_rows, unused},
                                                          {unused, few_rows},
                                                          {unused, unused},
                                                          {no_rows, unused},
                                                          {no_rows, no_rows},
                                                          {negative_zeros, unused},
                                                          {negative_zeros, negative_zeros, no_rows},
                                                          {few_rows, unused, few_rows, negative_zeros}}) {
    for (const Result& result : reduce(collective, shape, kinds, ++seed)) {
      EXPECT_TRUE(result.choice.as_rows) << seed;
      EXPECT_EQ(result.sparse, result.dense) << seed;
      EXPECT_LT(result.sparse_bytes, result.dense_bytes) << seed;
    }
  }
}

TEST_P(Sparse, IsDenseWhereARankHasTooManyRows) {
  const auto& [collective, shape] = GetParam();
  using enum Kind;
  std::uint32_t seed = 0;
  for (const auto& kinds : std::vector<std::vector<Kind>>{
           {few_rows, all_rows}, {unused, all_rows}, {all_rows, all_rows, no_rows}}) {
    for (const Result& result : reduce(collective, shape, kinds, ++seed)) {
      EXPECT_FALSE(result.choice.as_rows) << seed;
      EXPECT_EQ(result.sparse, result.dense) << seed;
    }
  }
}

TEST(SparseBucket, IsNotWorthwhileWhereRowsAreFewOrShort) {
  EXPECT_TRUE(SparseBucket::worthwhile(1 << 20, 1 << 10, 4));
  EXPECT_FALSE(SparseBucket::worthwhile(1 << 20, 1 << 10, 1));
  EXPECT_FALSE(SparseBucket::worthwhile(1 << 20, 1, 4));
  EXPECT_FALSE(SparseBucket::worthwhile(256, 4, 4));  // a row and its number take more than all of it
}

}  // namespace
}  // namespace dear::buckets::sparse_bucket_test
