#include "dear/platform/cost/chunk_times.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/fabric/chunk_play.h"

namespace dear::chunk_times_test {
namespace {

// Where each lane is busy with one dimension, chunk by chunk and message by message are the same.
void expect_agreement(const Cluster& cluster, Collective collective, std::int64_t bytes,
                      const std::string& algorithm) {
  const cost::ChunkNetwork network = cost::chunk_network(cluster);
  const algorithm::ChunkPlan plan =
      cost::make_chunk_plan(network, collective, bytes, {.algorithm = algorithm, .chunks = 16}).plan;
  const cost::ChunkTimes chunks = cost::play(plan, network);
  const fabric::PlayedChunks messages = fabric::play(plan, cluster);
  const std::string what = cluster.name + ", " + algorithm + ", " + std::string(name_of(collective));
  EXPECT_NEAR(messages.seconds, chunks.seconds, 1e-6 * chunks.seconds) << what;
  ASSERT_EQ(messages.bytes.size(), chunks.sent_bytes.size());
  for (std::size_t dimension = 0; dimension < messages.bytes.size(); ++dimension)
    EXPECT_NEAR(messages.bytes[dimension], chunks.sent_bytes[dimension], 1e-6 * static_cast<double>(bytes))
        << what;
}

TEST(ChunkTimes, OfPresetsAreThoseOfMessages) {
  for (const ClusterPreset& preset : clusters()) {
    Cluster cluster = preset.cluster;
    cluster.software = {};  // messages know of none
    if (cluster.ranks() > 2000) continue;
    for (const Collective collective :
         {Collective::reduce_scatter, Collective::all_gather, Collective::all_reduce}) {
      for (const cost::ChunkPlanner& planner : cost::chunk_planners())
        expect_agreement(cluster, collective, 64'000'001, std::string(planner.name));
    }
  }
}

// Rails whose switches carry less than the cards, and a spine above them.
TEST(ChunkTimes, OfTreesAreThoseOfMessages) {
  const Link near{.alpha_seconds = 2e-6, .beta_seconds_per_byte = 4e-12};
  const Link far{.alpha_seconds = 5e-6, .beta_seconds_per_byte = 8e-11};
  Cluster cluster{
      .name = "pods",
      .dimensions = {
          {.name = "node", .size = 4, .link = near},
          {.name = "rail", .size = 6, .link = far, .links = 4, .oversubscription = 2, .beside = true},
          {.name = "spine", .size = 4, .link = far, .links = 8, .oversubscription = 3}}};
  for (const cost::ChunkPlanner& planner : cost::chunk_planners())
    expect_agreement(cluster, Collective::all_reduce, 64'000'001, std::string(planner.name));
}

}  // namespace
}  // namespace dear::chunk_times_test
