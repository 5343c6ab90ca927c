#include <algorithm>
#include <array>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/predict/sim/simulate.h"
#include "dear/schedule/conductor/testing/order_check.h"
#include "dear/schedule/graph/critical_cycle.h"
#include "dear/schedule/policies/testing/random_job.h"

namespace dear::sim::compressed_test {
namespace {

using dear::testing::Random;
using ::testing::IsEmpty;

constexpr double kRelative = 1e-9;
constexpr std::array kPolicies = {"serial", "wfbp", "dear-replicated", "dear"};

// Seconds: two layers, forward 1 + 1, backward 1 + 1, a bucket of so many elements each.
Workload two_layers(std::int64_t elements) {
  return {.name = "two",
          .tensors = {{.name = "a", .elements = elements}, {.name = "b", .elements = elements}},
          .layers = {{.name = "first", .tensors = {0}, .forward_seconds = 1, .backward_seconds = 1},
                     {.name = "second", .tensors = {1}, .forward_seconds = 1, .backward_seconds = 1}}};
}

// On a ring of two ranks over which a reduce-scatter or an all-gather of so many bytes takes a second.
Evaluation evaluate_two(std::string_view policy, std::int64_t elements, double bytes_in_a_second,
                        const CompressionModel& model, Detail detail = Detail::closed_form) {
  const Cluster cluster = flat_cluster(
      {.name = "pair", .link = {.alpha_seconds = 0, .beta_seconds_per_byte = 2 / bytes_in_a_second}}, 2);
  const Workload workload = two_layers(elements);
  return evaluate(find_policy(policy), workload, group(workload, PerLayer{}), cluster,
                  cost::times_on(cluster, {.algorithm = "ring"}), {.detail = detail, .compression = model});
}

// 40 of 4000 elements, 160 bytes; encoding 0.5, decoding 0.25.
const CompressionModel kBlock{
    .compression = {.scheme = Scheme::random_block, .ratio = 0.01},
    .codec = {.encode_seconds_per_byte = 0.5 / 16000, .decode_seconds_per_byte = 0.25 / 16000}};

// From the first backward on: encode b 1 - 1.5, reduce-scatter b 1.5 - 2.5; encode a 2 - 2.5, reduce-scatter
// a 2.5 - 3.5; all-gather a 3.5 - 4.5, b 4.5 - 5.5; decode a 4.5 - 4.75, b 5.5 - 5.75; forwards 4.75 - 5.75
// and 5.75 - 6.75.
TEST(CompressedTimeline, OfReduciblePayloads) {
  for (const Detail detail : {Detail::closed_form, Detail::flows, Detail::blocks}) {
    const Evaluation dear = evaluate_two("dear", 4000, 160, kBlock, detail);
    EXPECT_NEAR(dear.iteration.seconds, 6.75, kRelative) << name_of(detail);
  }
  const Evaluation dear = evaluate_two("dear", 4000, 160, kBlock);
  EXPECT_DOUBLE_EQ(dear.compute_seconds, 4);
  EXPECT_DOUBLE_EQ(dear.codec_seconds, 1.5);
  EXPECT_DOUBLE_EQ(dear.exposed_communication_seconds, 2.75);
  EXPECT_DOUBLE_EQ(dear.r_seconds, 4);
  EXPECT_DOUBLE_EQ(dear.bound_seconds, 4);
  // All-reduces b 1.5 - 3.5, a 3.5 - 5.5; decode a 5.5 - 5.75.
  EXPECT_DOUBLE_EQ(evaluate_two("wfbp", 4000, 160, kBlock).iteration.seconds, 5.75 + 2);
}

// Encode b 1 - 1.5 before the backward of a, 1.5 - 2.5; encode a 2.5 - 3; reduce-scatters b 1.5 - 2.5, a 3 -
// 4; all-gathers a 4 - 5, b 5 - 6; decode a 5 - 5.25, forward 5.25 - 6.25, decode b 6.25 - 6.5, forward 6.5
// - 7.5.
TEST(CompressedTimeline, OfACodecThatSharesWhatComputes) {
  CompressionModel shared = kBlock;
  shared.codec.shares_compute = true;
  const Evaluation dear = evaluate_two("dear", 4000, 160, shared);
  EXPECT_DOUBLE_EQ(dear.iteration.seconds, 7.5);
  EXPECT_DOUBLE_EQ(dear.compute_seconds, 4);
  EXPECT_DOUBLE_EQ(dear.codec_seconds, 1.5);
  EXPECT_DOUBLE_EQ(dear.exposed_communication_seconds, 2);
  EXPECT_DOUBLE_EQ(dear.bound_seconds, 5.5);
}

// 40 pairs of 8 bytes from each of two ranks, 640 bytes. Where they take a second, b goes under the backward,
// 1 - 2, and a after it, 2 - 3: forwards 3 - 5. Where they take two, both go after the commit: a 2 - 4, b
// 4 - 6, forwards 4 - 5 and 6 - 7.
TEST(CompressedTimeline, OfGatheredPayloads) {
  const CompressionModel top{.compression = {.scheme = Scheme::top_k, .ratio = 0.01}};
  const Evaluation early = evaluate_two("dear", 4000, 640, top);
  EXPECT_DOUBLE_EQ(early.iteration.seconds, 5);
  EXPECT_DOUBLE_EQ(early.bound_seconds, 4);
  const Evaluation late = evaluate_two("dear", 4000, 320, top);
  EXPECT_DOUBLE_EQ(late.iteration.seconds, 7);
  EXPECT_DOUBLE_EQ(late.bound_seconds, 4);
}

// Left and right factors of 100 x 1, 400 bytes each. All-reduces of the left b 1 - 2, a 2 - 3;
// reduce-scatters of the right b 3 - 3.5, a 3.5 - 4; all-gathers a 4 - 4.5, b 4.5 - 5; forwards 4.5 - 6.5.
TEST(CompressedTimeline, OfLowRankInTwoRounds) {
  const CompressionModel low_rank{.compression = {.scheme = Scheme::low_rank, .rank = 1}};
  EXPECT_DOUBLE_EQ(evaluate_two("dear", 10'000, 800, low_rank).iteration.seconds, 6.5);
}

// 8000 elements: an index of 1000 bytes; 400 values of 1600 bytes. All-reduces of the index b 1 - 2, a 2 - 3;
// reduce-scatters of values b 3 - 3.8, a 3.8 - 4.6; all-gathers a 4.6 - 5.4, b 5.4 - 6.2; forwards 5.4 - 7.4.
TEST(CompressedTimeline, OfASketch) {
  const CompressionModel sketch{.compression = {.scheme = Scheme::sketch}};
  EXPECT_NEAR(evaluate_two("dear", 8000, 2000, sketch).iteration.seconds, 7.4, kRelative);
  CompressionModel denser = sketch;
  denser.sparsity.union_density = 0.1;  // values twice as long: halves of 1.6
  EXPECT_NEAR(evaluate_two("dear", 8000, 2000, denser).iteration.seconds, 1 + 2 * 1 + 4 * 1.6 + 1, kRelative);
}

TEST(Compressed, LaunchesCountForEachStep) {
  CompressionModel model = kBlock;
  model.codec = {.step_seconds = 0.125};
  EXPECT_DOUBLE_EQ(evaluate_two("dear", 4000, 160, model).codec_seconds, 4 * 0.125);
}

TEST(Compressed, StragglersEncodeMoreSlowly) {
  const Workload workload = two_layers(4000);
  Cluster cluster = flat_cluster({.name = "pair", .link = {.beta_seconds_per_byte = 1e-9}}, 2);
  cluster.stragglers = {{.rank = 1, .slowdown = 2}};
  EXPECT_DOUBLE_EQ(evaluate(find_policy("dear"), workload, group(workload, PerLayer{}), cluster,
                            cost::times_on(cluster), {.compression = kBlock})
                       .codec_seconds,
                   3);
}

// Encoded gradients are updated whole: the optimiser's states too. Residuals are as long as gradients,
// momentum twice; payloads of two buckets are 640 bytes each.
TEST(Compressed, MemoryCountsWhatTheCodecKeeps) {
  CompressionModel model{
      .compression = {.scheme = Scheme::top_k, .ratio = 0.01, .feedback = true, .momentum = 0.9}};
  const Memory memory = evaluate_two("dear", 4000, 640, model).memory;
  EXPECT_EQ(memory.parameters, 32'000);
  EXPECT_EQ(memory.gradients, 32'000);
  EXPECT_EQ(memory.optimizer, 32'000);
  EXPECT_EQ(memory.compression, 3 * 32'000 + 2 * 640);
  EXPECT_EQ(memory.total(), 192'000 + 1280);
  model.compression = {.scheme = Scheme::sketch};
  const Memory sketch = evaluate_two("dear", 4000, 640, model).memory;
  EXPECT_EQ(sketch.compression, 2 * (500 + 800));
}

TEST(Compressed, RefusesWhatCannotBe) {
  const auto refused = [](std::string_view policy, const CompressionModel& model, std::int64_t elements) {
    try {
      (void)evaluate_two(policy, elements, 640, model);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refused("dear", kBlock, 1000), HasSubstr("fp32"));
  EXPECT_THAT(refused("fsdp", kBlock, 4000), HasSubstr("fsdp"));
  for (const double density : {0.0, -1.0, 1.5})
    EXPECT_THAT(refused("dear", {.compression = {.scheme = Scheme::sketch}, .sparsity = {density}}, 4000),
                HasSubstr("density"));
  EXPECT_THAT(refused("dear", {.compression = {.scheme = Scheme::sketch}, .sparsity = {0.5}}, 4000),
              HasSubstr("most-density"));
  EXPECT_THAT(refused("dear", {.compression = {.scope = Scope::model}}, 4000), HasSubstr("whole model"));
  EXPECT_THAT(refused("dear", {.compression = {.ratio = 0}}, 4000), HasSubstr("ratio"));
}

bool has_encoded(const CompressionModel& model, const Workload& workload, const Grouping& grouping,
                 const cost::CollectiveTimes& times) {
  const std::vector<Encoding> encodings = encodings_of(model.compression, workload, grouping, times);
  return !std::all_of(encodings.begin(), encodings.end(), [](const Encoding& one) { return one.dense(); });
}

Compression random_compression(Random& random) {
  const auto scheme = static_cast<Scheme>(random.below(schemes().size()));
  Compression compression{.scheme = scheme};
  const bool has_ratio = scheme <= Scheme::block_top_k;
  if (has_ratio) compression.ratio = 0.001 + 0.2 * random.unit();
  if (scheme == Scheme::random_k || scheme == Scheme::random_block)
    compression.own_indices = random.below(2) == 0;
  return compression;
}

// No simulation is quicker than its bound, its floor or the codec, and none repeats itself at another rate
// than that of its critical cycle.
TEST(CompressedProperties, RandomJobs) {
  for (std::uint64_t seed = 0; seed < testing::rounds(150U); ++seed) {
    Random random(seed);
    const Workload workload = dear::testing::random_workload(random, 10);
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const Link link{.alpha_seconds = random.below(2) == 0 ? 0 : random.unit() * 1e-4,
                    .beta_seconds_per_byte = random.unit() * 1e-8};
    const Cluster cluster =
        flat_cluster({.name = "flat", .link = link}, 1 + static_cast<int>(random.below(8)));
    const cost::CollectiveTimes times = cost::times_on(cluster);
    CompressionModel model{.compression = random_compression(random),
                           .codec = {.encode_seconds_per_byte = random.unit() * 3e-9,
                                     .second_encode_seconds_per_byte = random.unit() * 1e-9,
                                     .decode_seconds_per_byte = random.unit() * 1e-9,
                                     .step_seconds = random.unit() * 1e-5}};
    if (!has_encoded(model, workload, grouping, times)) continue;
    for (const char* const name : kPolicies) {
      SCOPED_TRACE(::testing::Message()
                   << "seed " << seed << ", policy " << name << ", " << model.compression.text());
      const Policy& policy = find_policy(name);
      EvaluateOptions options{.iterations = 64, .updates_share_compute = false, .compression = model};
      const Evaluation beside = evaluate(policy, workload, grouping, cluster, times, options);
      const auto [schedule, encodings] = schedule_of(policy, workload, grouping, times, options);
      const std::vector<double> seconds = step_seconds(schedule, workload, grouping, times, encodings);
      const double critical = critical_cycle(schedule.graph(), seconds).seconds;
      EXPECT_NEAR(beside.iteration.seconds, critical, kRelative * critical);
      EXPECT_GE(beside.iteration.seconds, beside.bound_seconds * (1 - kRelative));
      EXPECT_GE(beside.bound_seconds, beside.codec_seconds);
      EXPECT_GE(beside.iteration.seconds,
                stale_gradient_floor(beside.f_seconds, beside.b_seconds, beside.r_seconds) * (1 - kRelative));
      EXPECT_THAT(conductor::order_violations(schedule, beside.spans, {}), IsEmpty());

      options.compression->codec.shares_compute = true;
      const Evaluation shared = evaluate(policy, workload, grouping, cluster, times, options);
      EXPECT_GE(shared.iteration.seconds, shared.bound_seconds * (1 - kRelative));
      EXPECT_GE(shared.iteration.seconds, (shared.compute_seconds + shared.codec_seconds) * (1 - kRelative));
      EXPECT_THAT(conductor::order_violations(schedule, shared.spans, {}), IsEmpty());
    }
  }
}

// Where nothing but bytes costs, fewer of them by the same ways are never slower.
TEST(CompressedProperties, FewerBytesAreNeverSlower) {
  for (std::uint64_t seed = 0; seed < testing::rounds(100U); ++seed) {
    Random random(seed);
    Workload workload = dear::testing::random_workload(random, 10);
    workload.update_seconds = 0;  // a shard's is less than a whole bucket's
    const Grouping grouping = dear::testing::random_grouping(random, workload);
    const Cluster cluster =
        flat_cluster({.name = "flat", .link = {.beta_seconds_per_byte = random.unit() * 1e-7}},
                     2 + static_cast<int>(random.below(7)));
    const cost::CollectiveTimes times = cost::times_on(cluster, {.algorithm = "ring"});
    for (const Compression& compression :
         {Compression{.scheme = Scheme::fp16}, Compression{.scheme = Scheme::random_k, .ratio = 0.1}}) {
      const CompressionModel model{.compression = compression};
      if (!has_encoded(model, workload, grouping, times)) continue;
      for (const char* const name : kPolicies) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed << ", policy " << name);
        const Policy& policy = find_policy(name);
        EXPECT_LE(
            evaluate(policy, workload, grouping, cluster, times, {.compression = model}).iteration.seconds,
            evaluate(policy, workload, grouping, cluster, times).iteration.seconds * (1 + kRelative));
      }
    }
  }
}

}  // namespace
}  // namespace dear::sim::compressed_test
