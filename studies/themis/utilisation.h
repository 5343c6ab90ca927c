#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/platform/cluster/cluster.h"

namespace dear::studies::themis {

// The networks on which Themis was evaluated: the presets whose names begin with "themis-".
std::vector<Cluster> evaluated_networks();

// An all-reduce on one network by one algorithm.
struct Use {
  std::string cluster;
  std::string algorithm;  // of chunk_planners()
  double seconds = 0;
  double utilisation = 0;              // of all bandwidth, 0 to 1
  double gain = 0;                     // over the baseline in as many chunks
  std::vector<double> by_dimension{};  // utilisation, innermost first
};

struct UtilisationOptions {
  std::int64_t bytes = 1'000'000'000;
  int chunks = 64;
};

// All planners on all networks: networks in order, planners innermost.
std::vector<Use> uses_of(const std::vector<Cluster>& networks, const UtilisationOptions& options);

// The mean over networks of what a member of Use is for one algorithm, and the largest.
struct OverNetworks {
  double mean = 0;
  double largest = 0;
};
OverNetworks over_networks(const std::vector<Use>& uses, const std::string& algorithm, double Use::* member);

}  // namespace dear::studies::themis
