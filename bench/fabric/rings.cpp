// bench_fabric [MOST_RANKS]: how long it takes to play ring all-reduces message by message (2 P (P - 1)
// messages), on networks on which nothing is shared and on some on which much is. Verifies each time against
// the closed form.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <sys/resource.h>

#include <fmt/format.h>

#include "dear/platform/fabric/play.h"

namespace {

using dear::Cluster;

constexpr double kBytes = 1 << 30;
constexpr dear::Link kNvlink{.alpha_seconds = 3e-6, .beta_seconds_per_byte = 1 / 450e9};
constexpr dear::Link kCard{.alpha_seconds = 10e-6, .beta_seconds_per_byte = 1 / 50e9};

struct Case {
  Cluster cluster;
  double seconds_of_byte = 0;  // of the slowest message of a round
};

Case flat(int ranks) {
  return {.cluster = {.name = "flat", .dimensions = {{.name = "ranks", .size = ranks, .link = kCard}}},
          .seconds_of_byte = kCard.beta_seconds_per_byte};
}

Case nodes(int ranks) {
  return {.cluster = {.name = "nodes of 8",
                      .dimensions = {{.name = "node", .size = 8, .link = kNvlink},
                                     {.name = "rack", .size = ranks / 8, .link = kCard}}},
          .seconds_of_byte = kCard.beta_seconds_per_byte};
}

// All messages of a round cross one switch, which carries a quarter.
Case oversubscribed(int ranks) {
  Case one = flat(ranks);
  one.cluster.name = "oversubscribed 4:1";
  one.cluster.dimensions.front().oversubscription = 4;
  one.seconds_of_byte *= 4;
  return one;
}

bool play(const Case& one) {
  const dear::fabric::Topology topology(one.cluster);
  const int ranks = topology.ranks();
  const auto rounds = dear::fabric::ring_rounds(dear::Collective::all_reduce, ranks);
  const auto begin = std::chrono::steady_clock::now();
  const dear::fabric::Played played = dear::fabric::play(rounds, topology, kBytes);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);

  const double expected = 2.0 * (ranks - 1) * (kCard.alpha_seconds + kBytes / ranks * one.seconds_of_byte);
  const bool right = std::abs(played.seconds - expected) <= 1e-9 * expected;
  fmt::print("{:<20} {:>6} {:>10} {:>9.3f} {:>12.2f} {:>9} {}\n", one.cluster.name, ranks, played.messages,
             took, static_cast<double>(played.messages) / took / 1e6, usage.ru_maxrss / 1024,
             right ? "" : fmt::format("WRONG: {} s instead of {} s", played.seconds, expected));
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const int most_ranks = argc > 1 ? std::atoi(argv[1]) : 1024;
  fmt::print("{:<20} {:>6} {:>10} {:>9} {:>12} {:>9}\n", "network", "ranks", "messages", "seconds",
             "million/s", "peak MiB");
  bool right = true;
  for (const auto make : {flat, nodes, oversubscribed}) {
    for (int ranks = 64; ranks <= most_ranks; ranks *= 2) right = play(make(ranks)) && right;
  }
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
