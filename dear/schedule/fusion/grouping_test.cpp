#include "dear/schedule/fusion/grouping.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::grouping_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using TensorIds = std::vector<TensorId>;

// uint8, so that elements are bytes.
Workload bytes_of_layers(const std::vector<std::int64_t>& sizes) {
  Workload workload{.name = "layers", .tensors = {}, .layers = {}};
  for (const std::int64_t size : sizes) {
    const auto id = static_cast<TensorId>(workload.tensors.size());
    workload.tensors.push_back({"tensor " + std::to_string(id), size, DType::u8});
    workload.layers.push_back({"layer " + std::to_string(id), {id}, 0, 0});
  }
  return workload;
}

std::vector<TensorIds> tensors_of(const Grouping& grouping) {
  std::vector<TensorIds> tensors;
  for (const Bucket& bucket : grouping.buckets()) tensors.push_back(bucket.tensors);
  return tensors;
}

// Threshold 100: {30, 40} stays below; 30 more would reach 100 exactly, so the bucket is closed before it.
// 250 is over the threshold by itself and shares with nobody; 99 + 1 reaches 100 again.
TEST(GroupBySize, ClosesABucketBeforeItReachesTheThreshold) {
  const Workload workload = bytes_of_layers({30, 40, 30, 250, 99, 1});
  const Grouping grouping = group(workload, BySize{.threshold_bytes = 100});
  EXPECT_THAT(tensors_of(grouping),
              ElementsAre(TensorIds{0, 1}, TensorIds{2}, TensorIds{3}, TensorIds{4}, TensorIds{5}));
  EXPECT_EQ(grouping.buckets()[0].bytes, 70);
  EXPECT_EQ(grouping.buckets()[2].bytes, 250);
  EXPECT_EQ(grouping.bucket_of(1), 0U);
  EXPECT_EQ(grouping.bucket_of(5), 4U);
}

TEST(GroupBySize, GivesTheFirstBucketAThresholdOfItsOwn) {
  const Workload workload = bytes_of_layers({10, 10, 10, 10, 10, 10});
  EXPECT_THAT(tensors_of(group(workload, BySize{.threshold_bytes = 45, .first_bytes = 25})),
              ElementsAre(TensorIds{0, 1}, TensorIds{2, 3, 4, 5}));
  EXPECT_THAT(tensors_of(group(workload, BySize{.threshold_bytes = 1, .first_bytes = 1000})),
              ElementsAre(TensorIds{0, 1, 2, 3, 4, 5}));
}

TEST(GroupBySize, RefusesThresholdsThatAreNotPositive) {
  const Workload workload = bytes_of_layers({10});
  EXPECT_THROW(group(workload, BySize{.threshold_bytes = 0}), ConfigError);
  EXPECT_THROW(group(workload, BySize{.threshold_bytes = 10, .first_bytes = -1}), ConfigError);
}

// Module 0 owns {0, 1}, module 2 owns {2} and ties 0, module 1 owns nothing.
TEST(Groupings, KeepModulesWholeAndGiveTiedTensorsToTheirFirstLayer) {
  const Workload workload{.name = "tied",
                          .tensors = {{"a", 60, DType::u8}, {"b", 60, DType::u8}, {"c", 60, DType::u8}},
                          .layers = {{"first", {0, 1}, 0, 0}, {"relu", {}, 0, 0}, {"head", {0, 2}, 0, 0}}};
  const auto expected = ElementsAre(TensorIds{0, 1}, TensorIds{2});
  EXPECT_THAT(tensors_of(group(workload, BySize{.threshold_bytes = 10})), expected);
  EXPECT_THAT(tensors_of(group(workload, PerLayer{})), expected);
  EXPECT_THAT(tensors_of(group(workload, AllInOne{})), ElementsAre(TensorIds{0, 1, 2}));
}

// fp32 and bf16 alternate in every layer: two runs of buckets, side by side, in the order of their first
// tensors.
TEST(Groupings, TreatEachDtypeByItself) {
  Workload workload{.name = "mixed", .tensors = {}, .layers = {}};
  for (TensorId layer = 0; layer < 3; ++layer) {
    workload.tensors.push_back({"weight", 100, DType::f32});
    workload.tensors.push_back({"scale", 50, DType::bf16});
    workload.layers.push_back({"layer", {2 * layer, 2 * layer + 1}, 0, 0});
  }
  const Grouping all = group(workload, AllInOne{});
  EXPECT_THAT(tensors_of(all), ElementsAre(TensorIds{0, 2, 4}, TensorIds{1, 3, 5}));
  EXPECT_EQ(all.buckets()[0].dtype, DType::f32);
  EXPECT_EQ(all.buckets()[0].bytes, 1200);
  EXPECT_EQ(all.buckets()[1].dtype, DType::bf16);
  EXPECT_EQ(all.buckets()[1].bytes, 300);
  EXPECT_EQ(group(workload, PerLayer{}).size(), 6U);
  // 400 bytes of fp32 a layer reach 500 at once; 100 + 100 + 100 of bf16 never do.
  EXPECT_THAT(tensors_of(group(workload, BySize{.threshold_bytes = 500})),
              ElementsAre(TensorIds{0}, TensorIds{1, 3, 5}, TensorIds{2}, TensorIds{4}));
}

TEST(Groupings, OfNoTensorsHaveNoBuckets) {
  const Workload workload{.name = "none", .tensors = {}, .layers = {{"relu", {}, 0, 0}}};
  EXPECT_EQ(group(workload, BySize{}).size(), 0U);
  EXPECT_EQ(group(workload, AllInOne{}).size(), 0U);
}

TEST(Groupings, RefuseAnInvalidWorkload) {
  Workload workload = bytes_of_layers({10, 10});
  workload.layers.pop_back();
  EXPECT_THAT([&] { group(workload, PerLayer{}); },
              ThrowsMessage<ConfigError>(HasSubstr("used by no layer")));
}

TEST(GroupingConstructor, PutsBucketsAndTensorsInOrderAndSumsThem) {
  const Workload workload = bytes_of_layers({1, 2, 4, 8});
  const Grouping grouping(workload, {{.tensors = {3, 1}, .bytes = 0}, {.tensors = {2, 0}, .bytes = 0}});
  EXPECT_THAT(tensors_of(grouping), ElementsAre(TensorIds{0, 2}, TensorIds{1, 3}));
  EXPECT_EQ(grouping.buckets()[0].bytes, 5);
  EXPECT_EQ(grouping.buckets()[1].bytes, 10);
  EXPECT_EQ(grouping.buckets()[0].dtype, DType::u8);
  EXPECT_EQ(grouping.bucket_of(3), 1U);
}

TEST(GroupingConstructor, RefusesWhatIsNoPartition) {
  Workload workload = bytes_of_layers({1, 2, 4});
  const auto make = [&](std::vector<TensorIds> buckets) {
    std::vector<Bucket> made;
    for (TensorIds& tensors : buckets) made.push_back({.tensors = std::move(tensors)});
    return Grouping(workload, std::move(made));
  };
  EXPECT_THAT([&] { make({{0}, {2}}); }, ThrowsMessage<ConfigError>(HasSubstr("tensor 1 ('tensor 1')")));
  EXPECT_THAT([&] { make({{0, 1}, {1, 2}}); },
              ThrowsMessage<ConfigError>(HasSubstr("tensor 1 ('tensor 1')")));
  EXPECT_THAT([&] { make({{0, 1, 1, 2}}); }, ThrowsMessage<ConfigError>(HasSubstr("twice")));
  EXPECT_THAT([&] { make({{0, 1, 2, 3}}); }, ThrowsMessage<ConfigError>(HasSubstr("has only 3")));
  EXPECT_THAT([&] { make({{0, 1, 2}, {}}); }, ThrowsMessage<ConfigError>(HasSubstr("bucket 1 is empty")));
  workload.tensors[1].dtype = DType::f16;
  EXPECT_THAT([&] { make({{0, 1, 2}}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("mixes uint8"), HasSubstr("fp16 of tensor 1"))));
}

Workload named(const std::vector<std::string>& names) {
  Workload workload = bytes_of_layers(std::vector<std::int64_t>(names.size(), 10));
  for (std::size_t t = 0; t < names.size(); ++t) workload.tensors[t].name = names[t];
  return workload;
}

TEST(GroupByName, FindsTensorsInAnyOrder) {
  const Workload workload = named({"a", "b", "c", "d"});
  const Grouping grouping = group(workload, ByName{.buckets = {{"d", "b"}, {"a"}, {"c"}}});
  EXPECT_THAT(tensors_of(grouping), ElementsAre(TensorIds{0}, TensorIds{1, 3}, TensorIds{2}));
  EXPECT_THAT(names_in(workload, grouping).buckets,
              ElementsAre(ElementsAre("a"), ElementsAre("b", "d"), ElementsAre("c")));
}

TEST(GroupByName, KeepsChunks) {
  const Workload workload = named({"a", "b", "c", "d"});
  const ByName names{.buckets = {{"d", "b"}, {"a"}, {"c"}}, .chunk_bytes = {8, 0, 3}};
  const Grouping grouping = group(workload, names);
  EXPECT_EQ(grouping.buckets()[0].chunk_bytes, 0);
  EXPECT_EQ(grouping.buckets()[1].chunk_bytes, 8);
  EXPECT_THAT(names_in(workload, grouping).chunk_bytes, ElementsAre(0, 8, 3));
  EXPECT_THAT(names_in(workload, group(workload, PerLayer{})).chunk_bytes, ::testing::IsEmpty());
  EXPECT_THAT([&] { group(workload, ByName{.buckets = names.buckets, .chunk_bytes = {8}}); },
              ThrowsMessage<ConfigError>(HasSubstr("chunk_bytes: 1 sizes for 3")));
  EXPECT_THAT([&] { group(workload, ByName{.buckets = names.buckets, .chunk_bytes = {-8, 0, 0}}); },
              ThrowsMessage<ConfigError>(ContainsRegex("bucket 0.* -8 bytes")));
}

TEST(GroupByName, LimitsTheNumberOfPieces) {
  const Workload workload = bytes_of_layers({1, 2048});
  const auto with = [&](std::int64_t chunk_bytes) {
    return Grouping(workload, {{.tensors = {0}, .chunk_bytes = chunk_bytes},
                               {.tensors = {1}, .chunk_bytes = chunk_bytes}});
  };
  EXPECT_EQ(with(2).buckets()[1].chunk_bytes, 2);
  EXPECT_THAT([&] { with(1); }, ThrowsMessage<ConfigError>(
                                    AllOf(HasSubstr("bucket 1"), HasSubstr("chunks of at least 2 bytes"))));
}

struct FaultyNames {
  std::vector<std::vector<std::string>> buckets;
  std::string message;
};
class RefusedNames : public ::testing::TestWithParam<FaultyNames> {};
TEST_P(RefusedNames, NameTheSourceAndTheTensor) {
  Workload workload = named({"a", "b", "c"});
  workload.tensors[2].dtype = DType::f16;
  const ByName names{.buckets = GetParam().buckets, .source = "plan.json"};
  EXPECT_THAT([&] { group(workload, names); },
              ThrowsMessage<ConfigError>(HasSubstr("plan.json: " + GetParam().message)));
}
INSTANTIATE_TEST_SUITE_P(
    Lists, RefusedNames,
    ::testing::Values(FaultyNames{{{"a", "b"}, {"x"}}, "buckets[1][0]: workload 'layers'"},
                      FaultyNames{{{"a"}, {"c"}}, "buckets: tensor 1 ('b') is in no"},
                      FaultyNames{{}, "buckets: tensor 0 ('a') is in no"},
                      FaultyNames{{{"a", "b"}, {"c"}, {"b"}}, "buckets: tensor 1 ('b') is in a"},
                      FaultyNames{{{"a", "b"}, {}, {"c"}}, "buckets: bucket 1 is empty"},
                      FaultyNames{{{"a"}, {"c", "b"}}, "buckets: bucket 1 mixes uint8 of"}));

TEST(RefusedNames, AreThoseOfTwoTensors) {
  const Workload workload = named({"a", "b", "a"});
  const auto message = HasSubstr("tensors 0 and 2");
  EXPECT_THAT([&] { group(workload, ByName{.buckets = {{"a", "b"}}}); }, ThrowsMessage<ConfigError>(message));
  EXPECT_THAT([&] { names_in(workload, group(workload, AllInOne{})); }, ThrowsMessage<ConfigError>(message));
}

// Up to 30 layers of up to 4 new tensors of up to 3 dtypes; a third of the layers tie an earlier tensor.
Workload random_workload(std::mt19937& random) {
  const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
  Workload workload{.name = "random", .tensors = {}, .layers = {}};
  const int layers = 1 + up_to(29);
  for (int l = 0; l < layers; ++l) {
    Layer layer{.name = "layer " + std::to_string(l), .tensors = {}};
    if (!workload.tensors.empty() && up_to(2) == 0) {
      layer.tensors.push_back(static_cast<TensorId>(random() % workload.tensors.size()));
    }
    for (int left = up_to(4); left > 0; --left) {
      layer.tensors.push_back(static_cast<TensorId>(workload.tensors.size()));
      workload.tensors.push_back({"tensor", 1 + up_to(999), static_cast<DType>(up_to(2))});
    }
    workload.layers.push_back(std::move(layer));
  }
  return workload;
}

// The layer that owns each tensor.
std::vector<std::size_t> owners_of(const Workload& workload) {
  std::vector<std::size_t> owners(workload.tensors.size(), workload.layers.size());
  for (std::size_t l = workload.layers.size(); l-- > 0;) {
    for (const TensorId t : workload.layers[l].tensors) owners[t] = l;
  }
  return owners;
}

void expect_partition_in_forward_order(const Workload& workload, const Grouping& grouping) {
  std::vector<int> seen(workload.tensors.size());
  for (std::size_t b = 0; b < grouping.size(); ++b) {
    const Bucket& bucket = grouping.buckets()[b];
    std::int64_t bytes = 0;
    for (const TensorId t : bucket.tensors) {
      ++seen[t];
      bytes += workload.tensors[t].bytes();
      EXPECT_EQ(grouping.bucket_of(t), b);
      EXPECT_EQ(workload.tensors[t].dtype, bucket.dtype);
    }
    EXPECT_EQ(bucket.bytes, bytes);
    EXPECT_TRUE(std::is_sorted(bucket.tensors.begin(), bucket.tensors.end()));
    if (b > 0) {
      EXPECT_LT(grouping.buckets()[b - 1].tensors.front(), bucket.tensors.front());
    }
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
}

TEST(GroupingProperties, HoldForRandomWorkloads) {
  std::mt19937 random(20240517);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const Workload workload = random_workload(random);
    const std::vector<std::size_t> owners = owners_of(workload);
    const std::int64_t threshold = 1 + static_cast<std::int64_t>(random() % 20'000);
    const Grouping grouping = group(workload, BySize{.threshold_bytes = threshold});
    expect_partition_in_forward_order(workload, grouping);
    expect_partition_in_forward_order(workload, group(workload, PerLayer{}));
    expect_partition_in_forward_order(workload, group(workload, AllInOne{}));

    std::map<std::pair<std::size_t, DType>, BucketId> bucket_of_unit;
    std::map<DType, const Bucket*> previous;
    for (std::size_t b = 0; b < grouping.size(); ++b) {
      const Bucket& bucket = grouping.buckets()[b];
      std::int64_t first_unit = 0;
      for (const TensorId t : bucket.tensors) {
        const auto [unit, is_new] =
            bucket_of_unit.emplace(std::pair{owners[t], bucket.dtype}, static_cast<BucketId>(b));
        EXPECT_EQ(unit->second, b) << "a module is split";
        if (owners[t] == owners[bucket.tensors.front()]) first_unit += workload.tensors[t].bytes();
      }
      // Below the threshold unless a single module is not; and never closed too early.
      EXPECT_TRUE(bucket.bytes < threshold || bucket.bytes == first_unit);
      if (const Bucket* before = previous[bucket.dtype]) {
        EXPECT_GE(before->bytes + first_unit, threshold);
        EXPECT_LT(before->tensors.back(), bucket.tensors.front());
      }
      previous[bucket.dtype] = &bucket;
    }
  }
}

TEST(FusionText, StandsForItsGrouping) {
  const Workload workload = bytes_of_layers({400, 400, 400, 3000, 400, 400});
  EXPECT_THAT(tensors_of(Fusion::parse("1kB")(workload)),
              ElementsAre(TensorIds{0, 1}, TensorIds{2}, TensorIds{3}, TensorIds{4, 5}));
  EXPECT_THAT(tensors_of(Fusion::parse("first=500B,1MiB")(workload)),
              ElementsAre(TensorIds{0}, TensorIds{1, 2, 3, 4, 5}));
  EXPECT_EQ(Fusion::parse("layer")(workload).size(), 6U);
  EXPECT_EQ(Fusion::parse("all")(workload).size(), 1U);
  EXPECT_EQ(Fusion::parse("first=1MiB,25MiB").text(), "first=1MiB,25MiB");
}

TEST(FusionText, IsTheSourceOfNames) {
  const Workload workload = named({"a", "b", "c"});
  const Fusion fusion(ByName{.buckets = {{"a", "c"}, {"b"}}, .source = "plan.json"});
  EXPECT_EQ(fusion.text(), "plan.json");
  EXPECT_THAT(tensors_of(fusion(workload)), ElementsAre(TensorIds{0, 2}, TensorIds{1}));
}

TEST(FusionText, DefaultsTo25MiB) {
  EXPECT_EQ(Fusion().text(), "25MiB");
  const Workload workload = bytes_of_layers({13 * kMiB, 12 * kMiB - 1, 1, 24 * kMiB});
  EXPECT_THAT(tensors_of(Fusion()(workload)), ElementsAre(TensorIds{0, 1}, TensorIds{2, 3}));
}

class RefusedFusion : public ::testing::TestWithParam<const char*> {};
TEST_P(RefusedFusion, ListsTheForms) {
  const std::string text = GetParam();
  EXPECT_THAT(
      [&] { Fusion::parse(text); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("fusion '" + text + "'"), HasSubstr("25MiB"),
                                       HasSubstr("first=1MiB,25MiB"), HasSubstr("layer"), HasSubstr("all"))));
}
INSTANTIATE_TEST_SUITE_P(Texts, RefusedFusion,
                         ::testing::Values("", "none", "Layer", "25", "0MiB", "first=1MiB", "first=1MiB,",
                                           "first=,25MiB", "25MiB,first=1MiB", "1MiB,25MiB",
                                           "first=1MiB,25MiB,2MiB", "first=layer,all", "layer,all"));

// Tensors 0 to 4 of 4, 8, 4, 8, 4 bytes; 1 and 3 are of another dtype. Tensor 0 is tied to the last layer.
Workload mixed_and_tied() {
  return {.name = "mixed and tied",
          .tensors = {{.name = "a", .elements = 1},
                      {.name = "b", .elements = 1, .dtype = DType::f64},
                      {.name = "c", .elements = 1},
                      {.name = "d", .elements = 1, .dtype = DType::f64},
                      {.name = "e", .elements = 1}},
          .layers = {{.name = "first", .tensors = {0, 1}},
                     {.name = "second", .tensors = {2, 3}},
                     {.name = "third", .tensors = {0, 4}}}};
}

TEST(GroupBackward, GoesFromTheLastTensorToTheFirst) {
  std::vector<TensorId> asked;
  const auto two_of_a_dtype = [&](const Bucket& bucket, std::size_t index, TensorId next) {
    asked.push_back(next);
    EXPECT_GT(bucket.tensors.back(), next);
    EXPECT_EQ(index, 0U);
    return bucket.tensors.size() == 2;
  };
  const Grouping grouping = group_backward(mixed_and_tied(), two_of_a_dtype);
  EXPECT_EQ(asked, (std::vector<TensorId>{2, 1, 0}));  // 4 and 3 begin the buckets of their dtypes
  ASSERT_EQ(grouping.size(), 3U);
  EXPECT_EQ(grouping.buckets()[0].tensors, (std::vector<TensorId>{0}));
  EXPECT_EQ(grouping.buckets()[1].tensors, (std::vector<TensorId>{1, 3}));
  EXPECT_EQ(grouping.buckets()[1].bytes, 16);
  EXPECT_EQ(grouping.buckets()[2].tensors, (std::vector<TensorId>{2, 4}));
}

TEST(OwnerOf, IsTheLayerThatUsesATensorFirst) {
  EXPECT_EQ(owner_of(mixed_and_tied()), (std::vector<LayerId>{0, 0, 1, 1, 2}));
}

}  // namespace
}  // namespace dear::grouping_test
