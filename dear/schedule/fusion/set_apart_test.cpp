#include "dear/schedule/fusion/set_apart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::set_apart_test {
namespace {

using ::testing::ElementsAre;

TEST(SetApart, GivesTensorsBucketsOfTheirOwn) {
  Workload workload{.name = "layers", .tensors = {}, .layers = {}};
  for (const TensorId id : {0U, 1U, 2U, 3U}) {
    workload.tensors.push_back({"tensor", 10 + id});
    workload.layers.push_back({"layer", {id}});
  }
  const Grouping all(workload, {{.tensors = {0, 1, 2, 3}, .chunk_bytes = 64}});
  const Grouping apart = set_apart(workload, all, {false, true, false, true});
  std::vector<std::vector<TensorId>> tensors;
  std::vector<std::int64_t> chunks, bytes;
  for (const Bucket& bucket : apart.buckets()) {
    tensors.push_back(bucket.tensors);
    chunks.push_back(bucket.chunk_bytes);
    bytes.push_back(bucket.bytes);
  }
  EXPECT_THAT(tensors, ElementsAre(ElementsAre(0, 2), ElementsAre(1), ElementsAre(3)));
  EXPECT_THAT(chunks, ElementsAre(64, 0, 0));
  EXPECT_THAT(bytes, ElementsAre(4 * 22, 4 * 11, 4 * 13));
  EXPECT_EQ(set_apart(workload, apart, {true, true, true, true}).size(), 4U);
}

}  // namespace
}  // namespace dear::set_apart_test
