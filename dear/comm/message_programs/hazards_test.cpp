#include "dear/comm/message_programs/hazards.h"

#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::message_programs::hazards_test {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Edge = std::pair<int, int>;

TEST(Hazards, ReadersWaitForTheWriterAndWritersForTheReaders) {
  Hazards hazards;
  Hazards::Edges edges;
  hazards.read(0, 10, 0, edges);
  EXPECT_THAT(edges, IsEmpty());
  hazards.write(5, 15, 1, edges);
  EXPECT_THAT(edges, UnorderedElementsAre(Edge(0, 1)));
  edges.clear();
  hazards.read(0, 5, 2, edges);
  EXPECT_THAT(edges, IsEmpty());
  hazards.read(14, 20, 3, edges);
  EXPECT_THAT(edges, UnorderedElementsAre(Edge(1, 3)));
  edges.clear();
  hazards.write(0, 20, 4, edges);
  EXPECT_THAT(std::set<Edge>(edges.begin(), edges.end()),
              UnorderedElementsAre(Edge(0, 4), Edge(1, 4), Edge(2, 4), Edge(3, 4)));
}

// Held against the definition, byte by byte. Edges may be left out where others imply them.
TEST(Hazards, AreThoseOfTheDefinition) {
  std::mt19937 generator(7);
  constexpr int kBytes = 24;
  constexpr int kNodes = 40;
  for (int round = 0; round < 200; ++round) {
    Hazards hazards;
    Hazards::Edges edges;
    struct Use {
      int begin;
      int end;
      bool writes;
    };
    std::vector<Use> uses;
    for (int node = 0; node < kNodes; ++node) {
      const int begin = std::uniform_int_distribution<int>(0, kBytes - 1)(generator);
      const int end = std::uniform_int_distribution<int>(begin + 1, kBytes)(generator);
      const bool writes = generator() % 2 == 0;
      uses.push_back({begin, end, writes});
      if (writes) {
        hazards.write(begin, end, node, edges);
      } else {
        hazards.read(begin, end, node, edges);
      }
    }
    std::vector<std::vector<bool>> before(kNodes, std::vector<bool>(kNodes));
    for (int after = 0; after < kNodes; ++after) {
      for (const auto& [first, second] : edges) {
        if (second == after) {
          ASSERT_LT(first, second);
          before[static_cast<std::size_t>(after)][static_cast<std::size_t>(first)] = true;
          for (std::size_t earlier = 0; earlier < kNodes; ++earlier) {
            if (before[static_cast<std::size_t>(first)][earlier]) {
              before[static_cast<std::size_t>(after)][earlier] = true;
            }
          }
        }
      }
    }
    for (std::size_t after = 0; after < kNodes; ++after) {
      for (std::size_t earlier = 0; earlier < after; ++earlier) {
        const Use& a = uses[earlier];
        const Use& b = uses[after];
        if (a.begin < b.end && b.begin < a.end && (a.writes || b.writes)) {
          EXPECT_TRUE(before[after][earlier]) << earlier << " before " << after;
        }
      }
    }
    for (const auto& [first, second] : edges) {
      const Use& a = uses[static_cast<std::size_t>(first)];
      const Use& b = uses[static_cast<std::size_t>(second)];
      EXPECT_TRUE(a.begin < b.end && b.begin < a.end && (a.writes || b.writes));
    }
  }
}

}  // namespace
}  // namespace dear::message_programs::hazards_test
