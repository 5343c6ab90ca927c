#include "dear/platform/cost/program_time.h"

#include <cmath>

#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/algorithm/algorithms.h"
#include "dear/platform/cost/ring.h"

namespace dear::cost::program_time_test {
namespace {

using algorithm::find_algorithm;
using algorithm::make_program;

constexpr Link kLink{.alpha_seconds = 30e-6, .beta_seconds_per_byte = 8e-10};
constexpr std::int64_t kBytes = 9'000'001;

double seconds(const char* name, Collective collective, int ranks, int blocks = 1) {
  return program_seconds(make_program(find_algorithm(name), collective, {.ranks = ranks, .blocks = blocks}),
                         kLink, kBytes);
}

TEST(ProgramTime, ARingTakesWhatTheFormulaSays) {
  for (int ranks = 1; ranks <= 33; ++ranks) {
    EXPECT_NEAR(seconds("ring", Collective::reduce_scatter, ranks),
                ring_reduce_scatter_seconds(kLink, ranks, kBytes), 1e-12);
    EXPECT_NEAR(seconds("ring", Collective::all_gather, ranks), ring_all_gather_seconds(kLink, ranks, kBytes),
                1e-12);
    EXPECT_NEAR(seconds("ring", Collective::all_reduce, ranks), ring_all_reduce_seconds(kLink, ranks, kBytes),
                1e-12);
    EXPECT_NEAR(seconds("pairwise", Collective::all_to_all, ranks),
                pairwise_all_to_all_seconds(kLink, ranks, kBytes), 1e-12);
  }
}

TEST(ProgramTime, HalvingAndDoublingSaveStartUpsOnPowersOfTwo) {
  for (int rounds = 0; rounds <= 5; ++rounds) {
    const int ranks = 1 << rounds;
    const double expected = rounds * kLink.alpha_seconds +
                            (1 - 1.0 / ranks) * static_cast<double>(kBytes) * kLink.beta_seconds_per_byte;
    EXPECT_NEAR(seconds("halving-doubling", Collective::reduce_scatter, ranks), expected, 1e-12) << ranks;
    EXPECT_NEAR(seconds("bruck", Collective::all_gather, ranks), expected, 1e-12) << ranks;
  }
}

// A rank sends a message of m / blocks bytes in each round, but for the depth of the trees at both ends.
TEST(ProgramTime, ADoubleTreeFillsItsLinks) {
  constexpr int kBlocks = 200;
  const double message =
      kLink.alpha_seconds + static_cast<double>(kBytes) / kBlocks * kLink.beta_seconds_per_byte;
  for (const int ranks : {3, 8, 17, 33}) {
    const double tree = seconds("double-tree", Collective::broadcast, ranks, kBlocks);
    const double depth = std::ceil(std::log2(ranks));
    EXPECT_GE(tree, (kBlocks - 1) * message) << ranks;
    EXPECT_LE(tree, (kBlocks + 2 * depth) * message) << ranks;
  }
}

TEST(ProgramTime, TheWholeIsItsHalves) {
  for (const algorithm::Algorithm& way : algorithm::algorithms()) {
    if (way.all_gather == nullptr) continue;
    for (const int ranks : {2, 5, 16}) {
      const std::string name(way.name);
      EXPECT_LE(seconds(name.c_str(), Collective::all_reduce, ranks),
                seconds(name.c_str(), Collective::reduce_scatter, ranks) +
                    seconds(name.c_str(), Collective::all_gather, ranks) + 1e-12)
          << name << ", " << ranks;
    }
  }
}

TEST(ProgramTime, RefusesNegativeBytes) {
  EXPECT_THROW(program_seconds(algorithm::ring_all_gather(2), kLink, -1), ConfigError);
}

}  // namespace
}  // namespace dear::cost::program_time_test
