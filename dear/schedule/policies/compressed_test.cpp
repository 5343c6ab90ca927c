#include "dear/schedule/policies/compressed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::compressed_test {
namespace {

using ::testing::ElementsAre;
using Way = EncodedPart::Way;

// Two weights and a bias in each of two layers.
Workload workload(double backward_seconds = 0) {
  return {
      .name = "test",
      .tensors = {{"first.weight", 4000}, {"first.bias", 40}, {"second.weight", 10000}, {"second.bias", 100}},
      .layers = {{"first", {0, 1}, 0, backward_seconds}, {"second", {2, 3}, 0, backward_seconds}}};
}

std::vector<Encoding> encodings(const Compression& compression,
                                const cost::CollectiveTimes& times = {.ranks = 4},
                                double backward_seconds = 0) {
  const Workload job = workload(backward_seconds);
  return encodings_of(compression, job, group(job, PerLayer{}), times);
}

std::vector<std::int64_t> bytes_of(const Encoding& encoding) {
  std::vector<std::int64_t> bytes;
  for (const EncodedPart& part : encoding.parts) bytes.push_back(part.bytes);
  return bytes;
}

TEST(Compressed, CountsWhatTravelsOfEachScheme) {
  const auto bytes = [](const Compression& compression) { return bytes_of(encodings(compression)[0]); };
  EXPECT_THAT(bytes({.scheme = Scheme::random_k, .ratio = 0.01}), ElementsAre(40 * 4, 160));
  EXPECT_THAT(bytes({.scheme = Scheme::random_block, .ratio = 0.01}), ElementsAre(40 * 4, 160));
  EXPECT_THAT(bytes({.scheme = Scheme::top_k, .ratio = 0.01}), ElementsAre(4 * 40 * 8, 160));
  EXPECT_THAT(bytes({.scheme = Scheme::random_k, .ratio = 0.01, .own_indices = true}),
              ElementsAre(4 * 40 * 8, 160));
  EXPECT_THAT(bytes({.scheme = Scheme::block_top_k, .ratio = 0.01}), ElementsAre(4 * 41 * 4, 160));
  EXPECT_THAT(bytes({.scheme = Scheme::bf16}), ElementsAre(8000, 160));
  EXPECT_THAT(bytes({.scheme = Scheme::low_rank, .rank = 2}), ElementsAre(63 * 8, 63 * 8, 160));
  EXPECT_THAT(bytes({.scheme = Scheme::sketch}), ElementsAre(500, 800, 160));
}

TEST(Compressed, DenseTensorsAloneMakeADenseBucket) {
  const std::vector<Encoding> made = encodings({.scheme = Scheme::top_k, .dense_below = 5000});
  EXPECT_TRUE(made[0].dense());
  EXPECT_FALSE(made[1].dense());
}

TEST(Compressed, TheLeastThatTravelsIsOneElement) {
  EXPECT_EQ(encodings({.scheme = Scheme::random_k, .ratio = 1e-9})[0].parts[0].bytes, 4);
}

TEST(Compressed, OverABucketOrTheModelASegmentHasAllItsTensors) {
  const Workload job = workload();
  const Compression compression{.scheme = Scheme::random_k, .ratio = 0.0001, .scope = Scope::bucket};
  const std::vector<Encoding> made = encodings_of(compression, job, group(job, AllInOne{}), {.ranks = 2});
  EXPECT_THAT(bytes_of(made[0]), ElementsAre(4, 560));
}

TEST(Compressed, LowRankKnowsTheRowsOfMatrices) {
  const Workload job = workload();
  const std::vector<Encoding> made =
      encodings_of({.scheme = Scheme::low_rank, .rank = 2}, job, group(job, PerLayer{}), {.ranks = 2}, {}, {},
                   {100, 1, 1, 1});
  EXPECT_THAT(bytes_of(made[0]), ElementsAre(100 * 8, 40 * 8, 160));
  EXPECT_TRUE(made[1].dense());  // a vector
}

// Backwards take 1 s each. The second layer's payload of 4 x 100 x 8 bytes is ready first.
TEST(Compressed, GathersGoUnderTheBackwardAsLongAsItLasts) {
  const auto late = [](double seconds_per_byte) {
    const cost::CollectiveTimes times{.ranks = 4, .all_gather = [=](std::int64_t bytes) {
                                        return seconds_per_byte * static_cast<double>(bytes);
                                      }};
    const std::vector<Encoding> made = encodings({.scheme = Scheme::top_k, .ratio = 0.01}, times, 1);
    return std::vector<bool>{made[0].gathers_late, made[1].gathers_late};
  };
  EXPECT_THAT(late(0), ElementsAre(false, false));
  EXPECT_THAT(late(0.9 / 3200), ElementsAre(true, false));
  EXPECT_THAT(late(1.1 / 3200), ElementsAre(true, true));
  EXPECT_FALSE(encodings({.scheme = Scheme::top_k})[1].gathers_late);  // without times: half early
  EXPECT_TRUE(encodings({.scheme = Scheme::top_k})[0].gathers_late);
}

TEST(Compressed, TheCodecTakesTimeByBytes) {
  const Workload job = workload();
  const std::vector<Encoding> made = encodings_of(
      {.scheme = Scheme::sketch}, job, group(job, PerLayer{}), {.ranks = 2},
      {.encode_seconds_per_byte = 1, .second_encode_seconds_per_byte = 2, .decode_seconds_per_byte = 3});
  EXPECT_THAT(made[0].encode_seconds, ElementsAre(16000, 32000));
  EXPECT_EQ(made[0].decode_seconds, 48000);
}

}  // namespace
}  // namespace dear::compressed_test
