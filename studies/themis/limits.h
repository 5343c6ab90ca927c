#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/platform/cluster/cluster.h"

// The cases in which chunks in orders of their own do not pay, and their distance from the optimum.
namespace dear::studies::themis {

// Networks of two to four dimensions of 2 to 16 members, whose bandwidths are up to 32 times apart, without
// start-ups; from 4 to 64 chunks.
struct RandomOptions {
  int networks = 3000;
  std::uint64_t seed = 1;
  std::int64_t bytes = 1'000'000'000;
};
struct RandomOutcome {
  std::string algorithm;
  double gain = 0;         // over the baseline in as many chunks: mean
  double worst = 0;        // least gain
  int slower = 0;          // networks on which it takes over 2 % longer than the baseline
  double utilisation = 0;  // mean
};
std::vector<RandomOutcome> on_random_networks(const RandomOptions& options);

// Two dimensions of 2 to 4 members, bandwidths up to 8 times apart; every plan of so many chunks is looked
// at.
struct OptimumOptions {
  int networks = 100;
  std::vector<int> chunks{2, 3, 4};
  std::uint64_t seed = 1;
  std::int64_t most_steps = 400'000;
};
struct OptimumOutcome {
  std::string algorithm;
  int chunks = 0;
  int networks = 0;   // whose optimum was found
  double longer = 0;  // times as long as the optimum: mean
  double most_longer = 0;
  int reached = 0;  // networks on which it is the optimum
};
std::vector<OptimumOutcome> beside_the_optimum(const OptimumOptions& options);

// Vectors of several sizes on networks whose messages take time to start: means over networks.
struct SizeOptions {
  std::vector<std::int64_t> bytes;
  double start_up_inside = 1.9e-6;  // seconds of a message in the innermost dimension
  double start_up_outside = 4e-6;   // in all others
  int chunks = 64;
};
struct SizeOutcome {
  std::string algorithm;
  std::int64_t bytes = 0;
  double gain = 0;  // over the best baseline, in one chunk to as many, doubling: geometric mean
};
std::vector<SizeOutcome> by_size(const std::vector<Cluster>& networks, const SizeOptions& options);

// An all-reduce on a cluster that exists, or could.
struct PresetOutcome {
  std::string cluster;
  std::int64_t bytes = 0;
  double one_chunk_seconds = 0;  // one dimension after another, all at once in each
  double baseline_seconds = 0;   // the best baseline
  double seconds = 0;            // of `themis`
  double utilisation = 0;
  std::string plan;  // what `themis` chose
  int chunks = 0;
};
// All presets of several dimensions but those of the evaluation.
std::vector<PresetOutcome> on_presets(const std::vector<std::int64_t>& sizes);

}  // namespace dear::studies::themis
