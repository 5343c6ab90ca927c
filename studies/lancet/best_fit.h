#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What best fit hides of all-to-alls under weight gradients, beside the most that any choice hides.
namespace dear::studies::lancet {

// Random networks of two to four layers, so small that every choice is looked at: 128 to 2048 wide, mixtures
// in every layer or every second, on 8 to 64 ranks of the clusters, products up to 16 times as fast as by the
// table of devices.
struct BestFitOptions {
  int graphs = 300;
  std::uint64_t seed = 1;
  std::vector<std::string> clusters{"p3dn-64", "p4de-64"};
  std::size_t most_instructions = 11;  // to place; graphs of more are drawn again
};
struct BestFitOutcome {
  int graphs = 0;
  int optimal = 0;   // of them
  double mean = 0;   // part of the optimum that best fit hides
  double least = 1;  // likewise
};
BestFitOutcome beside_the_optimum(const BestFitOptions& options);

}  // namespace dear::studies::lancet
