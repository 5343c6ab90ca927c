#include "dear/predict/sim/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/presets.h"

namespace dear::sim {
namespace {

using ::testing::HasSubstr;

// 2 ranks a node at 1 byte a second, 2 nodes at half of that.
Cluster small() {
  return {.name = "small",
          .dimensions = {{.name = "node", .size = 2, .link = {0, 1}},
                         {.name = "rail", .size = 2, .link = {0, 2}, .links = 2, .beside = true}}};
}

TEST(CollectiveRun, OneChunkFillsOneDimensionAfterTheOther) {
  const CollectiveOptions options{.operation = Collective::reduce_scatter, .bytes = 1600, .chunks = 1};
  const CollectiveRun run = run_collective(small(), options, "baseline");
  EXPECT_DOUBLE_EQ(run.seconds, 800 + 2 * 400);
  EXPECT_DOUBLE_EQ(ideal_collective_seconds(small(), options), 1200 / 1.5);
  EXPECT_DOUBLE_EQ(run.utilisation, 0.5);
  ASSERT_EQ(run.dimensions.size(), 2U);
  EXPECT_EQ(run.dimensions[1].name, "rail");
  EXPECT_DOUBLE_EQ(run.dimensions[0].utilisation, 0.5);
  EXPECT_DOUBLE_EQ(run.dimensions[1].utilisation, 0.5);
  EXPECT_DOUBLE_EQ(run.dimensions[1].sent_bytes, 400);
  const Trace trace = trace_of(small(), options, run);
  ASSERT_EQ(trace.spans.size(), 2U);
  EXPECT_EQ(trace.spans[1].lane, "rail");
  EXPECT_DOUBLE_EQ(trace.spans[1].begin_seconds, 800);
}

TEST(CollectiveRun, OtherAlgorithmsHaveTheirClosedForm) {
  const CollectiveOptions options{.bytes = 1600};
  const CollectiveRun run = run_collective(small(), options, "ring");
  EXPECT_DOUBLE_EQ(run.seconds, 2 * 0.75 * 1600);  // one ring, over both links of a node
  EXPECT_EQ(run.chunks, 0);
  EXPECT_THROW(utilisation_plot(small(), options, {run}), ConfigError);
}

TEST(CollectiveRun, WritesWhatItFound) {
  const CollectiveOptions options{.bytes = 1 << 20, .chunks = 16};
  const Cluster cluster = find_cluster("a100-100gbit-512");
  const std::vector<CollectiveRun> runs{run_collective(cluster, options, "baseline"),
                                        run_collective(cluster, options, "nccl"),
                                        run_collective(cluster, options, "themis")};
  EXPECT_LE(runs[2].seconds, runs[0].seconds);
  const auto json = nlohmann::json::parse(to_json(cluster, options, runs));
  EXPECT_EQ(json["runs"].size(), 3U);
  EXPECT_DOUBLE_EQ(json["runs"][2]["seconds"], runs[2].seconds);
  EXPECT_FALSE(json["runs"][1].contains("chunks"));
  EXPECT_EQ(json["runs"][0]["dimensions"][1]["name"], "rail");
  EXPECT_THAT(utilisation_plot(cluster, options, runs), HasSubstr("of all bandwidth"));
}

// Switches that carry what their ports can, halving and doubling: chunk by chunk is what messages make of it.
TEST(CollectiveRun, MessagesAgreeWithChunks) {
  CollectiveOptions options{.bytes = 1 << 24, .chunks = 8};
  const Cluster cluster = find_cluster("themis-3d-sw-sw-sw-hetero-1024", 128);
  for (const char* const algorithm : {"baseline", "themis-scf"}) {
    options.detail = ChunkDetail::chunks;
    const CollectiveRun chunks = run_collective(cluster, options, algorithm);
    options.detail = ChunkDetail::messages;
    const CollectiveRun messages = run_collective(cluster, options, algorithm);
    EXPECT_NEAR(messages.seconds, chunks.seconds, 0.01 * chunks.seconds) << algorithm;
    EXPECT_GT(messages.messages, 0U);
    ASSERT_EQ(messages.spans.size(), chunks.spans.size());
    for (std::size_t dimension = 0; dimension < chunks.dimensions.size(); ++dimension) {
      EXPECT_NEAR(messages.dimensions[dimension].sent_bytes, chunks.dimensions[dimension].sent_bytes, 1);
    }
  }
}

TEST(CollectiveRun, RefusesWhatCannotBe) {
  EXPECT_THROW(parse_chunk_detail("flows"), ConfigError);
  EXPECT_THROW(run_collective(small(), {.bytes = 1}, "thetis"), ConfigError);
  EXPECT_THROW(run_collective(small(), {.operation = Collective::broadcast, .bytes = 1}, "themis"),
               ConfigError);
  EXPECT_THROW(run_collective(small(), {.operation = Collective::broadcast, .bytes = 1}, "ring"),
               ConfigError);
  EXPECT_THROW(run_collective(small(), {.bytes = -1}, "ring"), ConfigError);
}

}  // namespace
}  // namespace dear::sim
