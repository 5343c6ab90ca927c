#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/plan/plan.h"

namespace dear::plan::compressed_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 4;
constexpr std::int64_t kElements = 1'000'000;
constexpr double kBytes = 4.0 * kElements;
constexpr double kRing = 2.0 * (kRanks - 1) / kRanks;  // of the bytes, that an all-reduce sends

// One layer: forward 1 ms, backward 2 ms.
Workload one_layer() {
  return {.name = "one",
          .tensors = {{.name = "weight", .elements = kElements}},
          .layers = {{.name = "only", .tensors = {0}, .forward_seconds = 1e-3, .backward_seconds = 2e-3}}};
}

Workload two_layers() {
  Workload workload = one_layer();
  workload.tensors.push_back({.name = "more", .elements = kElements});
  workload.layers.push_back(
      {.name = "second", .tensors = {1}, .forward_seconds = 1e-3, .backward_seconds = 2e-3});
  return workload;
}

Cluster cluster_of(double bits_per_second, double alpha_seconds = 0, int ranks = kRanks) {
  return flat_cluster(
      {.name = "own", .link = {.alpha_seconds = alpha_seconds, .beta_seconds_per_byte = 8 / bits_per_second}},
      ranks);
}

Options with(const char* policy, const CompressionModel& model) {
  return {.policies = {&find_policy(policy)}, .times = {.algorithm = "ring"}, .compressions = {model}};
}

CompressedRow row_of(const Cluster& cluster, const char* policy, const CompressionModel& model) {
  return plan(one_layer(), cluster, with(policy, model)).compressed.at(0);
}

// 1 % of the elements; encoding 3 ms, decoding 1 ms for all.
const CompressionModel kBlock{
    .compression = {.scheme = Scheme::random_block, .ratio = 0.01},
    .codec = {.encode_seconds_per_byte = 3e-3 / kBytes, .decode_seconds_per_byte = 1e-3 / kBytes}};

// Under `serial` nothing overlaps: compression pays where the codec takes less than what the wire saves, 99 %
// of the bytes that a ring sends. The same wherever the cluster itself lies.
TEST(Crossover, OfARingIsWhereTheCodecTakesWhatTheWireSaves) {
  const double by_hand = 8 * kRing * 0.99 * kBytes / 4e-3;
  for (const double bits_per_second : {1e8, 1e10, 1e12}) {
    const Crossover crossover = row_of(cluster_of(bits_per_second), "serial", kBlock).crossover;
    EXPECT_NEAR(crossover.bits_per_second, by_hand, 2e-4 * by_hand);
    EXPECT_DOUBLE_EQ(crossover.here, bits_per_second);
    EXPECT_THAT(crossover.why, HasSubstr("codec takes 4 ms"));
  }
}

// Start-up is the same with and without; it moves nothing.
TEST(Crossover, OfARingKnowsNoStartUp) {
  const double by_hand = 8 * kRing * 0.99 * kBytes / 4e-3;
  EXPECT_NEAR(row_of(cluster_of(1e10, 1e-4), "serial", kBlock).crossover.bits_per_second, by_hand,
              2e-4 * by_hand);
}

TEST(Crossover, ACodecInNoTimePaysUntilNothingIsExposed) {
  CompressionModel model = kBlock;
  model.codec = {};
  EXPECT_EQ(row_of(cluster_of(1e10), "serial", model).crossover.bits_per_second,
            8 * std::numeric_limits<double>::infinity());
}

// Of a pair a rank gathers from 64 ranks: 64 x 8 bytes x 0.2 of the elements are more than 2 x 4 of all.
TEST(Crossover, GatheredPayloadsGrowWithRanks) {
  const CompressionModel top{.compression = {.scheme = Scheme::top_k, .ratio = 0.2}};
  const CompressedRow many = row_of(cluster_of(1e9, 0, 64), "serial", top);
  EXPECT_EQ(many.crossover.bits_per_second, 0);
  EXPECT_THAT(many.crossover.why, HasSubstr("payloads of all 64"));
  EXPECT_GT(many.row.evaluation.iteration.seconds, many.dense_seconds);
  const CompressedRow few = row_of(cluster_of(1e9, 0, 2), "serial", top);
  EXPECT_LT(few.row.evaluation.iteration.seconds, few.dense_seconds);
}

// The all-reduces of both rounds and the dense rest start up three times.
TEST(Crossover, NamesStartUp) {
  const CompressionModel low_rank{.compression = {.scheme = Scheme::low_rank, .rank = 1}};
  const Crossover crossover = row_of(cluster_of(1e10, 1e-3), "serial", low_rank).crossover;
  EXPECT_GT(crossover.bits_per_second, 0);
  EXPECT_TRUE(std::isfinite(crossover.bits_per_second));
  EXPECT_THAT(crossover.why, HasSubstr("start-up"));
}

TEST(Crossover, NamesWhatHidesAlready) {
  Workload workload = one_layer();
  workload.layers.insert(workload.layers.begin(),
                         {.name = "first", .tensors = {}, .forward_seconds = 1, .backward_seconds = 1});
  CompressionModel model = kBlock;
  model.codec = {};
  const Answer answer = plan(workload, cluster_of(1e10), with("wfbp", model));
  EXPECT_TRUE(std::isfinite(answer.compressed.at(0).crossover.bits_per_second));
  EXPECT_THAT(answer.compressed.at(0).crossover.why, HasSubstr("hides under computation"));
}

TEST(CompressedPlan, TakesTheFastestPolicyThatCompresses) {
  Options options = with("dear", kBlock);
  options.policies = {&find_policy("fsdp"), &find_policy("serial"), &find_policy("dear")};
  const Answer answer = plan(two_layers(), cluster_of(1e8), options);
  EXPECT_EQ(answer.rows.size(), 3U);
  EXPECT_EQ(answer.compressed.at(0).row.policy->name, "dear");
  EXPECT_LT(answer.compressed[0].row.evaluation.iteration.seconds, answer.compressed[0].dense_seconds);
  EXPECT_THAT(answer.verdict, ::testing::Contains(HasSubstr("random-block")));
  // The row to use is one that learns the same.
  EXPECT_FALSE(answer.rows[answer.best].evaluation.codec_seconds > 0);
}

TEST(CompressedPlan, RefusesWhatCannotBe) {
  EXPECT_THROW(row_of(cluster_of(1e8), "fsdp", kBlock), ConfigError);
  Workload halves = one_layer();
  halves.tensors[0].dtype = DType::bf16;
  EXPECT_THROW(plan(halves, cluster_of(1e8), with("dear", kBlock)), ConfigError);
}

// All of the model in one segment: only one bucket will do.
TEST(CompressedPlan, FindsTheBucketThatAScopeNeeds) {
  const Workload workload = two_layers();
  CompressionModel model = kBlock;
  model.compression.scope = Scope::model;
  EXPECT_EQ(plan(workload, cluster_of(1e8), with("dear", model)).compressed.at(0).row.grouping.size(), 1U);
  EXPECT_THAT(plan(workload, cluster_of(1e8)).compressed, IsEmpty());
}

}  // namespace
}  // namespace dear::plan::compressed_test
