#pragma once

#include "studies/report/progress.h"
#include <cstdint>
#include <vector>

namespace dear::studies::homomorphic {

// Above so many rows for each key peeling recovers all keys with high probability (Molloy 2005,
// doi:10.1002/rsa.20061).
inline constexpr double kThreshold = 1.2218;

// How often a group of so many keys is recovered as a whole.
struct RecoveryRate {
  std::int64_t keys = 0;
  double rows_per_key = 0;
  double whole = 0;   // the share of trials in which every key came out
  double left = 0;    // the mean share of keys that did not
  double rounds = 0;  // of peeling, the mean where every key came out; 0 for none
};

struct RecoveryOptions {
  std::vector<std::int64_t> keys;  // of a group, each at most 2^16 / the largest of rows_per_key
  std::vector<double> rows_per_key;
  int trials = 300;
};

// By the codec's own hash and peeling, each trial with a seed of its own. In the order of the options, rows
// for each key fastest. ConfigError for less than one trial and for more rows than a group has.
std::vector<RecoveryRate> recovery_rates(const RecoveryOptions& options,
                                         const studies::Progress& progress = {});

}  // namespace dear::studies::homomorphic
