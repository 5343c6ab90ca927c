#include "dear/schedule/codec/codec_times.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/measure_codec.h"

namespace dear::codec::codec_times_test {
namespace {

// Block of 1 of 100: read and written; zeros, each of two values read, read and written, and the mean read.
TEST(MemoryTraffic, ByPencil) {
  const MemoryTraffic block = memory_traffic_of({.scheme = Scheme::random_block, .ratio = 0.01}, 8, 0.05);
  EXPECT_DOUBLE_EQ(block.encode, 0.02);
  EXPECT_DOUBLE_EQ(block.decode, 1.03 + 1);
  const MemoryTraffic half = memory_traffic_of({.scheme = Scheme::fp16, .momentum = 0.9}, 8, 0.05);
  EXPECT_DOUBLE_EQ(half.encode, 1.5 + 3);
  EXPECT_DOUBLE_EQ(half.decode, 1.5 + 1);
  // Eight payloads of an index and a value each, to values in sectors of eight.
  const MemoryTraffic top =
      memory_traffic_of({.scheme = Scheme::top_k, .ratio = 0.01, .feedback = true}, 8, 0);
  EXPECT_DOUBLE_EQ(top.encode, 5 + 0.02 + 5);
  EXPECT_DOUBLE_EQ(top.decode, 1 + 8 * (0.02 + 0.16) + 1);
}

// Values by key: 5 of 100, in blocks. Those of fixed point have 8 bytes.
TEST(MemoryTraffic, OfSketchesByPencil) {
  Compression sketch{.scheme = Scheme::sketch};
  sketch.sketch.block = 16;
  const MemoryTraffic plain = memory_traffic_of(sketch, 8, 0.05);
  EXPECT_DOUBLE_EQ(plain.second_encode, 1. / 32 + 0.05 + 0.05);
  EXPECT_DOUBLE_EQ(plain.decode, 1 + 1. / 32 + 0.05 + 0.05 + 1);
  sketch.sketch.exact = true;
  const MemoryTraffic exact = memory_traffic_of(sketch, 8, 0.05);
  EXPECT_DOUBLE_EQ(exact.second_encode, 1. / 32 + 0.05 + 0.1);
  EXPECT_DOUBLE_EQ(exact.decode, 1 + 1. / 32 + 0.1 + 0.05 + 1);
}

TEST(MemoryTraffic, EverySchemeTouchesGradients) {
  for (const SchemeInfo& info : schemes()) {
    SCOPED_TRACE(info.name);
    const bool has_ratio = info.scheme <= Scheme::block_top_k;
    const Compression compression{.scheme = info.scheme, .ratio = has_ratio ? 0.02 : Compression{}.ratio};
    const MemoryTraffic traffic = memory_traffic_of(compression, 4, 0.05);
    EXPECT_GT(traffic.encode, 0);
    EXPECT_GE(traffic.decode, 2);
    EXPECT_EQ(traffic.second_encode > 0, info.scheme == Scheme::low_rank || info.scheme == Scheme::sketch);
    EXPECT_GT(traffic.kernels, 0);
  }
}

TEST(CodecTimes, OfAMemoryAndLaunches) {
  const CodecTimes times =
      times_by_memory({.encode = 2, .second_encode = 4, .decode = 1, .kernels = 3}, 100, 0.5);
  EXPECT_DOUBLE_EQ(times.encode_seconds_per_byte, 0.02);
  EXPECT_DOUBLE_EQ(times.second_encode_seconds_per_byte, 0.04);
  EXPECT_DOUBLE_EQ(times.decode_seconds_per_byte, 0.01);
  EXPECT_DOUBLE_EQ(times.step_seconds, 1.5);
  EXPECT_FALSE(times.shares_compute);
}

// The timer answers 1, 10, 100, ... s: each digit of the sum says how often a measurement counts.
TEST(MeasureCodec, CountsEachPassOnce) {
  for (const char* const text : {"random-k:0.01,ef", "fp16", "low-rank:2", "low-rank:2,ef"}) {
    SCOPED_TRACE(text);
    double next = 1, sum = 0;
    const Timer timer = [&](const Action& before, const Action& work) {
      before();
      work();
      sum += next;
      return std::exchange(next, next * 10);
    };
    const Compression compression = Compression::parse(text);
    const CodecTimes times = measure_codec(compression, 1, 0.05, timer);
    const double counted =
        times.encode_seconds_per_byte + times.second_encode_seconds_per_byte + times.decode_seconds_per_byte;
    EXPECT_DOUBLE_EQ(counted * (16 << 20), sum);
  }
}

// It runs every scheme with what is done before and after; how long is the machine's affair.
TEST(MeasureCodec, MeasuresEveryScheme) {
  for (const char* const text :
       {"random-k:0.01", "random-k:0.01,own,ef", "random-block:0.01,ef,momentum=0.9,correction",
        "top-k:0.01,ef", "block-top-k:0.01,decay=0.1", "fp16", "bf16,ef", "low-rank:2,ef", "sketch",
        "sketch,exact,block=16"}) {
    SCOPED_TRACE(text);
    const Compression compression = Compression::parse(text);
    const CodecTimes times = measure_codec(compression, 2, 0.05);
    EXPECT_GT(times.encode_seconds_per_byte, 0);
    EXPECT_GT(times.decode_seconds_per_byte, 0);
    EXPECT_EQ(times.second_encode_seconds_per_byte > 0,
              compression.scheme == Scheme::low_rank || compression.scheme == Scheme::sketch);
  }
  EXPECT_THROW(measure_codec({.ratio = 0}, 2, 0.05), ConfigError);
}

}  // namespace
}  // namespace dear::codec::codec_times_test
