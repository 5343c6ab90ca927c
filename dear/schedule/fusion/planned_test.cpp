#include "dear/schedule/fusion/planned.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/workload/layers/testing/workloads.h"

namespace dear::planned_test {
namespace {

using ::testing::ElementsAre;

Workload random_layers(std::mt19937& random, int layers) {
  std::uniform_real_distribution<double> unit(0, 1);
  Workload workload{.name = "random", .tensors = {}, .layers = {}};
  for (int layer = 0; layer < layers; ++layer) {
    Layer made{.name = "l" + std::to_string(layer),
               .tensors = {},
               .forward_seconds = unit(random),
               .backward_seconds = 2 * unit(random)};
    if (random() % 4 != 0 || layer == 0) {
      made.tensors.push_back(static_cast<TensorId>(workload.tensors.size()));
      workload.tensors.push_back(
          {.name = "t" + std::to_string(layer), .elements = 1 + static_cast<std::int64_t>(random() % 1000)});
    }
    workload.layers.push_back(std::move(made));
  }
  return workload;
}

cost::CollectiveTimes random_times(std::mt19937& random) {
  std::uniform_real_distribution<double> unit(0, 1);
  return cost::ring_times({.alpha_seconds = unit(random) * 0.2, .beta_seconds_per_byte = unit(random) * 1e-3},
                          4);
}

// Every partition into buckets of neighbours; bit u of `cuts` is a border before tensor u + 1.
double best_of_all(const Workload& workload, const cost::CollectiveTimes& times, Overlap overlap) {
  const std::size_t count = workload.tensors.size();
  double best = 1e300;
  const std::size_t borders = count == 0 ? 0 : count - 1;
  for (std::uint32_t cuts = 0; cuts < (1U << borders); ++cuts) {
    std::vector<Bucket> buckets(1);
    for (TensorId tensor = 0; tensor < count; ++tensor) {
      if (tensor > 0 && ((cuts >> (tensor - 1)) & 1U) != 0) buckets.emplace_back();
      buckets.back().tensors.push_back(tensor);
    }
    best = std::min(
        best, recursive_iteration_seconds(workload, Grouping(workload, std::move(buckets)), times, overlap));
  }
  return best;
}

// Buckets of 200 GiB are cut, but into no more chunks than there may be.
TEST(Planned, CutsHugeBucketsIntoAsManyPiecesAsThereMayBe) {
  Workload workload{.name = "huge", .tensors = {}, .layers = {}};
  for (TensorId layer = 0; layer < 3; ++layer) {
    const std::int64_t gibibytes = layer == 0 ? 1 : 200;
    workload.tensors.push_back({"t" + std::to_string(layer), gibibytes << 28});
    workload.layers.push_back({"l" + std::to_string(layer), {layer}, 100, 200});
  }
  const cost::CollectiveTimes times =
      cost::ring_times({.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-9}, 4);
  const Grouping grouping = group_planned(workload, times, Overlap::eager);
  std::int64_t most = 0;
  for (const Bucket& bucket : grouping.buckets())
    if (bucket.chunk_bytes > 0)
      most = std::max(most, (bucket.bytes + bucket.chunk_bytes - 1) / bucket.chunk_bytes);
  EXPECT_GT(most, 1);
  EXPECT_LE(most, kMostChunks);
}

TEST(Planned, NoPartitionIsBetter) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const Workload workload = random_layers(random, 1 + round % 11);
    const cost::CollectiveTimes times = random_times(random);
    for (const Overlap overlap : {Overlap::all_reduce, Overlap::decoupled}) {
      SCOPED_TRACE(::testing::Message() << "round " << round << ", overlap " << static_cast<int>(overlap));
      const Grouping planned = group_planned(workload, times, overlap);
      const double best = best_of_all(workload, times, overlap);
      EXPECT_NEAR(recursive_iteration_seconds(workload, planned, times, overlap), best, 1e-9 * best);
    }
  }
}

// Where start-up alone counts, one bucket is best; where bytes alone count, none beats one for each layer.
TEST(Planned, StartUpJoinsAndBytesPart) {
  const Workload workload =
      dear::testing::workload_of({.layers = 6, .elements = 100, .forward_seconds = 1, .backward_seconds = 2});
  for (const Overlap overlap : {Overlap::all_reduce, Overlap::decoupled}) {
    EXPECT_EQ(group_planned(workload, cost::ring_times({.alpha_seconds = 100}, 2), overlap).size(), 1U);
    const cost::CollectiveTimes times = cost::ring_times({.beta_seconds_per_byte = 0.02}, 2);
    const Grouping planned = group_planned(workload, times, overlap);
    EXPECT_GE(planned.size(), 2U);
    EXPECT_DOUBLE_EQ(recursive_iteration_seconds(workload, planned, times, overlap),
                     recursive_iteration_seconds(workload, group(workload, PerLayer{}), times, overlap));
  }
}

// Three layers of backward 2, 2, 1 and of 4, 4 and 400 bytes in forward order, 1 s a collective and 0.01 s a
// byte sent, two ranks. All-reduces: each 2 + bytes x 0.01. The large tensor is ready first, at 1, and done
// at 7; the two small ones cost less together (2.08) than apart (2 x 2.04).
TEST(Planned, ByPencil) {
  const Workload workload{
      .name = "pencil",
      .tensors = {{.name = "a", .elements = 1}, {.name = "b", .elements = 1}, {.name = "c", .elements = 100}},
      .layers = {{.name = "a", .tensors = {0}, .backward_seconds = 2},
                 {.name = "b", .tensors = {1}, .backward_seconds = 2},
                 {.name = "c", .tensors = {2}, .backward_seconds = 1}}};
  const cost::CollectiveTimes times =
      cost::ring_times({.alpha_seconds = 1, .beta_seconds_per_byte = 0.01}, 2);
  const Grouping planned = group_planned(workload, times, Overlap::all_reduce);
  ASSERT_EQ(planned.size(), 2U);
  EXPECT_THAT(planned.buckets()[0].tensors, ElementsAre(0, 1));
  EXPECT_DOUBLE_EQ(recursive_iteration_seconds(workload, planned, times, Overlap::all_reduce),
                   1 + (2 + 4.00) + (2 + 0.08));
}

TEST(Planned, KeepsDtypesApartAndTakesTiedTensors) {
  const Workload workload{.name = "mixed",
                          .tensors = {{.name = "a", .elements = 4},
                                      {.name = "b", .elements = 4, .dtype = DType::f16},
                                      {.name = "c", .elements = 4}},
                          .layers = {{.name = "first", .tensors = {0, 1}, .backward_seconds = 1},
                                     {.name = "second", .tensors = {2}, .backward_seconds = 1},
                                     {.name = "head", .tensors = {0}, .backward_seconds = 1}}};
  for (const Overlap overlap : {Overlap::all_reduce, Overlap::decoupled})
    EXPECT_GE(group_planned(workload, cost::ring_times({.alpha_seconds = 1}, 2), overlap).size(), 2U);
}

TEST(Planned, NothingToGroup) {
  const Workload workload{
      .name = "bare",
      .tensors = {},
      .layers = {{.name = "only", .tensors = {}, .forward_seconds = 1, .backward_seconds = 2}}};
  const cost::CollectiveTimes times = cost::ring_times({.alpha_seconds = 1}, 2);
  for (const Overlap overlap : {Overlap::all_reduce, Overlap::decoupled}) {
    const Grouping planned = group_planned(workload, times, overlap);
    EXPECT_EQ(planned.size(), 0U);
    EXPECT_EQ(recursive_iteration_seconds(workload, planned, times, overlap), 3);
  }
}

// It has as many layers as DenseNet-201 has.
TEST(Planned, HundredsOfLayers) {
  std::mt19937 random(9);
  const Workload workload = random_layers(random, 402);
  const cost::CollectiveTimes times = random_times(random);
  for (const Overlap overlap : {Overlap::all_reduce, Overlap::decoupled}) {
    const double planned =
        recursive_iteration_seconds(workload, group_planned(workload, times, overlap), times, overlap);
    for (const std::int64_t threshold : {1'000, 4'000, 16'000, 64'000, 256'000}) {
      const Grouping equal = group(workload, BySize{.threshold_bytes = threshold});
      EXPECT_LE(planned, recursive_iteration_seconds(workload, equal, times, overlap) * (1 + 1e-9));
    }
  }
}

}  // namespace
}  // namespace dear::planned_test
