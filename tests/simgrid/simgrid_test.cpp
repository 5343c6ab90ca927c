#include "judge.h"
#include <cmath>

#include <gtest/gtest.h>

#include "dear/algorithm/algorithms.h"
#include "dear/base/units.h"
#include "dear/fabric/play.h"

namespace dear::judge {
namespace {

using algorithm::Collective;
using algorithm::find_algorithm;
using algorithm::make_program;
using algorithm::Program;

constexpr Collective kCollectives[] = {Collective::reduce_scatter, Collective::all_gather,
                                       Collective::all_reduce};
constexpr Link kInside{.alpha_seconds = 5e-6, .beta_seconds_per_byte = 1 / 100e9};
constexpr Link kAcross{.alpha_seconds = 30e-6, .beta_seconds_per_byte = 1 / 12.5e9};

// Blocks have whole bytes there, so they have here.
void expect_agreement(const Program& program, const Platform& platform, std::int64_t about_bytes) {
  const auto block_bytes = static_cast<std::uint64_t>((about_bytes + program.blocks - 1) / program.blocks);
  const double bytes = static_cast<double>(block_bytes) * program.blocks;
  const double ours = fabric::play(program, fabric::Topology(cluster_of(platform)), bytes).seconds;
  const double theirs = simgrid_seconds(program, platform, block_bytes);
  EXPECT_NEAR(ours, theirs, 1e-6 * theirs) << program.name << ", " << platform.nodes << " nodes of "
                                           << platform.ranks_per_node << ", " << bytes << " bytes";
}

class OfBytes : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(SimGrid, OfBytes, testing::Values(kKiB, 64 * kKiB, 8 * kMiB, 256 * kMiB),
                         [](const auto& tested) { return std::to_string(tested.param); });

TEST_P(OfBytes, OnAFlatNetwork) {
  for (const char* name : {"ring", "halving-doubling"}) {
    for (const Collective collective : kCollectives) {
      for (const int ranks : {2, 3, 7, 16, 33, 64})
        expect_agreement(make_program(find_algorithm(name), collective, {.ranks = ranks}),
                         {.nodes = ranks, .across = kAcross}, GetParam());
    }
  }
}

TEST_P(OfBytes, HierarchicallyOnNodes) {
  const algorithm::Algorithm& ring = find_algorithm("ring");
  const algorithm::Algorithm& doubling = find_algorithm("halving-doubling");
  for (const Collective collective : kCollectives) {
    for (const auto& [nodes, ranks_per_node] : {std::pair{2, 2}, {3, 4}, {4, 8}, {8, 8}}) {
      const Platform platform{
          .nodes = nodes, .ranks_per_node = ranks_per_node, .inside = kInside, .across = kAcross};
      expect_agreement(hierarchical(ring, ring, collective, nodes, ranks_per_node), platform, GetParam());
      expect_agreement(hierarchical(ring, doubling, collective, nodes, ranks_per_node), platform, GetParam());
    }
  }
}

// What knows nothing of nodes crosses them as it comes, and shares their links unevenly.
TEST_P(OfBytes, FlatlyOnNodes) {
  for (const char* name : {"ring", "halving-doubling"}) {
    for (const Collective collective : kCollectives) {
      for (const auto& [nodes, ranks_per_node] : {std::pair{2, 2}, {3, 4}, {8, 8}})
        expect_agreement(
            make_program(find_algorithm(name), collective, {.ranks = nodes * ranks_per_node}),
            {.nodes = nodes, .ranks_per_node = ranks_per_node, .inside = kInside, .across = kAcross},
            GetParam());
    }
  }
}

TEST_P(OfBytes, ThroughASwitchThatCarriesLess) {
  for (const char* name : {"ring", "halving-doubling", "bruck"}) {
    for (const int nodes : {3, 8, 16})
      expect_agreement(
          make_program(find_algorithm(name), Collective::all_reduce, {.ranks = 2 * nodes}),
          {.nodes = nodes, .ranks_per_node = 2, .inside = kInside, .across = kAcross, .oversubscription = 3},
          GetParam());
  }
}

}  // namespace
}  // namespace dear::judge
