#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/workload/zoo/make_workload.h"

namespace dear::sim::hsdp_test {
namespace {

using ::testing::ContainsRegex;

// 32 bytes, forward 1 s, backward 2 s; two nodes of two ranks that share a card. Inside, a half takes 1/2 of
// the bytes at 1/16 s: 1 s. Across, an all-reduce takes twice 1/2 of the bytes at 1/8 s: 4 s.
struct Pencil {
  Workload workload{.name = "pencil",
                    .tensors = {{.name = "t", .elements = 8}},
                    .layers = {{.name = "l", .tensors = {0}, .forward_seconds = 1, .backward_seconds = 2}},
                    .update_seconds = 0.5};
  Cluster cluster{.name = "two nodes",
                  .dimensions = {{.name = "node", .size = 2, .link = {.beta_seconds_per_byte = 1.0 / 16}},
                                 {.name = "network", .size = 2, .link = {.beta_seconds_per_byte = 1.0 / 8}}}};
  Evaluation of(std::string_view policy, const EvaluateOptions& options = {}) const {
    return evaluate(find_policy(policy), workload, group(workload, PerLayer{}), cluster,
                    cost::times_on(cluster), options);
  }
};

TEST(Hsdp, ByPencil) {
  const Pencil pencil;
  const Evaluation hsdp = pencil.of("hsdp");
  for (const Detail detail : {Detail::flows, Detail::blocks})
    EXPECT_NEAR(pencil.of("hsdp", {.detail = detail}).iteration.seconds, hsdp.iteration.seconds, 1e-9);
  EXPECT_NEAR(pencil.of("hsdp", {.detail = Detail::blocks, .program = "hierarchical:ring,halving-doubling"})
                  .iteration.seconds,
              hsdp.iteration.seconds, 1e-9);
  // Gather, forward, gather again, backward, reduce-scatter, all-reduce, update of one of two shards.
  EXPECT_DOUBLE_EQ(hsdp.iteration.seconds, 1 + 1 + 1 + 2 + 1 + 4 + 0.25);
  EXPECT_DOUBLE_EQ(hsdp.r_seconds, 7);
  // It is the same of all four ranks: a half takes 1/2 of the bytes inside and 1/2 across, 3 s; four shards.
  EXPECT_DOUBLE_EQ(pencil.of("fsdp").iteration.seconds, 3 + 1 + 3 + 2 + 3 + 0.125);
}

TEST(Hsdp, KeepsTheShardOfANode) {
  const Pencil pencil;
  const Memory hsdp = pencil.of("hsdp").memory, fsdp = pencil.of("fsdp").memory;
  EXPECT_EQ(hsdp.optimizer, 32 / 2);
  EXPECT_EQ(fsdp.optimizer, 32 / 4);
  EXPECT_EQ(hsdp.parameters, 32);  // the one bucket, whole while it is used
}

// Where no ranks share a node there is nothing to shard over.
TEST(Hsdp, OnAFlatNetworkReplicates) {
  Pencil pencil;
  pencil.cluster.dimensions.erase(pencil.cluster.dimensions.begin());
  const Evaluation hsdp = pencil.of("hsdp");
  EXPECT_DOUBLE_EQ(hsdp.iteration.seconds, 1 + 2 + 4 + 0.5);
  EXPECT_EQ(hsdp.memory.optimizer, 32);
}

TEST(Hsdp, OfSeveralJobsHasNoNodes) {
  try {
    (void)Pencil().of("hsdp", {.detail = Detail::flows, .jobs = {.count = 2}});
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ContainsRegex("policy hsdp.* one job"));
  }
}

// A rank that is late holds up its node inside, and its place in every node across.
TEST(Hsdp, WaitsForWhoIsLate) {
  Pencil pencil;
  pencil.cluster.stragglers = {{.rank = 3, .slowdown = 2}};
  for (const Detail detail : {Detail::flows, Detail::blocks})
    EXPECT_NEAR(pencil.of("hsdp", {.detail = detail}).iteration.seconds, 1 + 2 + 1 + 4 + 1 + 4 + 0.5, 1e-9);
}

// Nodes of eight on NVLink, a card for each: fewer start-ups, and a third less between nodes.
TEST(Hsdp, BeatsFsdpOnNodesWithNvlink) {
  for (const char* const name : {"a100-100gbit-512", "dgx-a100-200gbit-512", "dgx-h100-400gbit-1024"})
    for (const char* const model : {"bert-large", "gpt2-xl"}) {
      SCOPED_TRACE(::testing::Message() << model << " on " << name);
      const Cluster cluster = find_cluster(name);
      const Workload workload =
          zoo::make_workload(zoo::find_model(model), zoo::find_device(cluster.device), {.batch = 2});
      const auto of = [&](std::string_view policy) {
        return evaluate(find_policy(policy), workload, group(workload, BySize{}), cluster,
                        cost::times_on(cluster));
      };
      const Evaluation hsdp = of("hsdp"), fsdp = of("fsdp");
      EXPECT_LT(hsdp.iteration.seconds, fsdp.iteration.seconds);
      EXPECT_GT(hsdp.memory.total(), fsdp.memory.total());
      EXPECT_LT(hsdp.memory.total(), of("dear").memory.total());
    }
}

}  // namespace
}  // namespace dear::sim::hsdp_test
