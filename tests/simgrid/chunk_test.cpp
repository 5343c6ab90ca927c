#include "chunk_judge.h"
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dear/platform/algorithm/testing/chunk_plans.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/fabric/chunk_play.h"

namespace dear::judge::chunk_test {
namespace {

using algorithm::ChunkPlan;

// A thousand times as slow as usual: what is less than a nanosecond apart SimGrid takes for one instant.
constexpr Link kFast{.alpha_seconds = 2e-3, .beta_seconds_per_byte = 1 / 100e6};
constexpr Link kMiddle{.alpha_seconds = 5e-3, .beta_seconds_per_byte = 1 / 50e6};
constexpr Link kSlow{.alpha_seconds = 20e-3, .beta_seconds_per_byte = 1 / 12.5e6};
constexpr Wiring kRing = Wiring::ring, kSwitched = Wiring::switched, kMesh = Wiring::full_mesh;
constexpr Collective kCollectives[] = {Collective::reduce_scatter, Collective::all_gather,
                                       Collective::all_reduce};

struct Case {
  const char* name;
  std::vector<Wire> wires;
};
std::ostream& operator<<(std::ostream& out, const Case& tested) { return out << tested.name; }

// Blocks have whole bytes there, so they have here.
ChunkPlan plan_for(const Cluster& cluster, Collective collective, int chunks, std::int64_t most_bytes,
                   std::mt19937& random) {
  algorithm::Grid grid;
  for (const Dimension& dimension : cluster.dimensions) grid.sizes.push_back(dimension.size);
  ChunkPlan plan = algorithm::testing::empty_chunk_plan(grid, collective);
  plan.lanes = lanes_of(cluster);
  for (std::string& algorithm : plan.algorithms)
    algorithm = algorithm::line_algorithms()[random() % algorithm::line_algorithms().size()];
  algorithm::testing::add_random_chunks(plan, chunks, most_bytes, random);
  for (std::int64_t& bytes : plan.chunk_bytes) bytes = (bytes + 1) * grid.ranks();
  return plan;
}

class Chunks : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    SimGrid, Chunks,
    testing::Values(
        Case{"Switches2x2", {{2, kSwitched, kFast}, {2, kSwitched, kSlow}}},
        Case{"Switches4x2", {{4, kSwitched, kFast}, {2, kSwitched, kSlow}}},
        Case{"MeshRing4x2", {{4, kMesh, kFast}, {2, kRing, kSlow}}},
        Case{"RingMesh2x2x2", {{2, kRing, kFast}, {2, kMesh, kFast}, {2, kRing, kMiddle}}},
        Case{"Switches2x2x2", {{2, kSwitched, kFast}, {2, kSwitched, kFast}, {2, kSwitched, kFast}}},
        Case{"Switches4x4x2", {{4, kSwitched, kFast}, {4, kSwitched, kMiddle}, {2, kSwitched, kSlow}}},
        Case{"Rings4x4x2", {{4, kRing, kFast}, {4, kRing, kMiddle}, {2, kRing, kSlow}}},
        Case{"Meshes4x4x2", {{4, kMesh, kFast}, {4, kMesh, kMiddle}, {2, kMesh, kSlow}}},
        Case{"RingMeshSwitch4x4x2", {{4, kRing, kFast}, {4, kMesh, kMiddle}, {2, kSwitched, kSlow}}},
        Case{"MeshRingSwitch3x5x3", {{3, kMesh, kMiddle}, {5, kRing, kFast}, {3, kSwitched, kSlow}}},
        Case{"Switch7", {{7, kSwitched, kSlow}}},
        Case{"TreeBesideAMesh", {{3, kMesh, kFast}, {2, kSwitched, kSlow}, {4, kSwitched, kSlow, 2}}}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(Chunks, EndWhenSimGridSaysTheyDo) {
  const std::vector<Wire>& wires = GetParam().wires;
  const Cluster cluster = cluster_of(wires);
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    for (const Collective collective : kCollectives) {
      const ChunkPlan plan =
          plan_for(cluster, collective, 1 + static_cast<int>(seed) * 2, 1 << (3 * seed), random);
      std::vector<double> enter(static_cast<std::size_t>(cluster.ranks()), 0);
      if (seed % 2 == 1) {
        for (double& seconds : enter) seconds = static_cast<double>(random() % 100) * 1e-3;
      }
      const fabric::PlayedChunks ours = fabric::play(plan, cluster, {.enter_seconds = enter});
      const std::vector<double> theirs = simgrid_chunk_seconds(plan, wires, enter);
      for (std::size_t rank = 0; rank < theirs.size(); ++rank)
        EXPECT_NEAR(ours.end_seconds[rank], theirs[rank], 1e-6 * theirs[rank])
            << "rank " << rank << ", " << name_of(collective) << ", seed " << seed;
    }
  }
}

// The planner knows phases of chunks, SimGrid only messages.
TEST_P(Chunks, TakeWhatTheirPlannerPredicts) {
  const std::vector<Wire>& wires = GetParam().wires;
  const Cluster cluster = cluster_of(wires);
  const std::vector<double> enter(static_cast<std::size_t>(cluster.ranks()), 0);
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_reduce}) {
    for (const std::string algorithm : {"baseline", "themis-fifo", "themis-scf", "themis"}) {
      const cost::PlannedChunks planned =
          cost::make_chunk_plan(cluster, collective, 64'000'000, {.algorithm = algorithm, .chunks = 16});
      const std::vector<double> theirs = simgrid_chunk_seconds(planned.plan, wires, enter);
      EXPECT_NEAR(planned.seconds / *std::max_element(theirs.begin(), theirs.end()), 1, 1e-4)
          << algorithm << ", " << name_of(collective);
    }
  }
}

}  // namespace
}  // namespace dear::judge::chunk_test
