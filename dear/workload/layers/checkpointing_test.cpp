#include "dear/workload/layers/checkpointing.h"

#include <gtest/gtest.h>

namespace dear::checkpointing_test {
namespace {

// Layers that keep so many bytes each, forward 1, backward 2.
Workload keeping(const std::vector<std::int64_t>& bytes) {
  Workload workload{.name = "keeping", .tensors = {}, .layers = {}};
  for (const std::int64_t kept : bytes)
    workload.layers.push_back({.name = "layer",
                               .tensors = {},
                               .forward_seconds = 1,
                               .backward_seconds = 2,
                               .activation_bytes = kept});
  return workload;
}

std::int64_t kept_by(const Workload& workload) {
  std::int64_t bytes = 0;
  for (const Layer& layer : workload.layers) bytes += layer.activation_bytes;
  return bytes;
}

// Of k segments of 16 / k layers k - 1 ends are kept, and one segment is whole: 3 + 4.
TEST(Checkpointing, KeepsAboutTheRootOfWhatThereIs) {
  const Workload all = keeping(std::vector<std::int64_t>(16, 10));
  const Workload some = with_activation_checkpointing(all);
  EXPECT_EQ(kept_by(all), 160);
  EXPECT_EQ(kept_by(some), 70);
  EXPECT_EQ(some.forward_seconds(), 16);
  EXPECT_EQ(some.backward_seconds(), 48);
}

// Segments end where little is kept: 2 + 2 and one of 20 + 2.
TEST(Checkpointing, EndsSegmentsWhereLittleIsKept) {
  EXPECT_EQ(kept_by(with_activation_checkpointing(keeping({20, 2, 20, 2, 20, 2}))), 26);
}

TEST(Checkpointing, OfUnknownActivationsOnlyTakesTime) {
  const Workload some = with_activation_checkpointing(keeping({0, 0}));
  EXPECT_EQ(kept_by(some), 0);
  EXPECT_EQ(some.backward_seconds(), 6);
}

TEST(Checkpointing, NeverKeepsMore) {
  for (const std::vector<std::int64_t>& bytes :
       std::vector<std::vector<std::int64_t>>{{5}, {5, 1}, {1, 100, 1}, {0, 0, 7, 0}, {3, 3, 3, 3, 100}})
    EXPECT_LE(kept_by(with_activation_checkpointing(keeping(bytes))), kept_by(keeping(bytes)));
}

}  // namespace
}  // namespace dear::checkpointing_test
