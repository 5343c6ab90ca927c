#include "judge.h"
#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/units.h"
#include "dear/platform/algorithm/algorithms.h"
#include "dear/platform/fabric/play.h"
#include "dear/platform/fabric/traffic.h"

namespace dear::judge::simgrid_test {
namespace {

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
  const double theirs = simgrid_seconds({{.program = program, .block_bytes = block_bytes}}, platform).front();
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

// Jobs on some of the ranks each, which come one by one: they meet in all ways. One start-up for all, because
// SimGrid gives less of a link to those with a longer one.
TEST(SimGrid, AgreesOnJobsThatMeetAnyhow) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    const Platform platform{.nodes = pick(1, 5),
                            .ranks_per_node = pick(2, 6),
                            .inside = {.alpha_seconds = 2e-3, .beta_seconds_per_byte = 1e-6},
                            .across = {.alpha_seconds = 2e-3, .beta_seconds_per_byte = 2e-6},
                            .links_per_node = pick(1, 3),
                            .oversubscription = static_cast<double>(pick(1, 3))};
    const fabric::Topology topology(cluster_of(platform));
    fabric::Traffic traffic(topology);
    std::vector<Job> jobs;
    for (int i = pick(2, 5); i > 0; --i) {
      Job& job = jobs.emplace_back();
      job.ranks.resize(static_cast<std::size_t>(topology.ranks()));
      std::iota(job.ranks.begin(), job.ranks.end(), 0);
      std::shuffle(job.ranks.begin(), job.ranks.end(), random);
      job.ranks.resize(static_cast<std::size_t>(pick(2, topology.ranks())));
      const auto& way = algorithm::algorithms()[static_cast<std::size_t>(pick(0, 3))];
      job.program =
          make_program(way, kCollectives[pick(0, 2)], {.ranks = static_cast<int>(job.ranks.size())});
      job.block_bytes = static_cast<std::uint64_t>(pick(1, 20'000));
      const fabric::CollectiveId id =
          traffic.open(fabric::rounds_of(job.program),
                       static_cast<double>(job.block_bytes) * job.program.blocks, job.ranks);
      for (int member = 0; member < job.program.ranks; ++member) {
        job.enter_seconds.push_back(pick(0, 100) * 1e-3);
        traffic.enter(id, member, job.enter_seconds.back());
      }
    }
    std::vector<double> ours(jobs.size());
    for (auto ended = traffic.advance(); !ended.empty(); ended = traffic.advance()) {
      for (const fabric::Completion& end : ended) ours.at(end.collective) = end.seconds;
    }
    const std::vector<double> theirs = simgrid_seconds(jobs, platform);
    for (std::size_t job = 0; job < jobs.size(); ++job)
      EXPECT_NEAR(ours[job], theirs[job], 1e-6 * theirs[job]) << "job " << job << " of seed " << seed;
  }
}

}  // namespace
}  // namespace dear::judge::simgrid_test
