#pragma once

#include <string>
#include <vector>

#include "dear/platform/cluster/cluster.h"

namespace dear::studies::themis {

struct IterationOptions {
  std::vector<std::string> models{"resnet152", "gnmt", "dlrm", "gpt-1t"};
  std::vector<std::string> policies{"serial", "dear"};  // without overlap, and with DeAR's
  std::vector<std::string> algorithms{"themis-fifo", "themis-scf", "themis"};
  std::string device = "a100";  // at whose pace a model computes where nothing else is said
  std::string dtype = "bf16";
  // Communication by the baseline as a multiple of computation: forward and backward become faster or slower,
  // evenly, so that an all-reduce's worth of the buckets takes so many times as long.
  std::vector<double> ratios{0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16};
};

// The gain of an algorithm over the baseline: the geometric mean over networks, and the largest.
struct IterationGain {
  std::string model;
  std::string policy;
  std::string algorithm;
  double ratio = 0;                // of communication to computation; 0: at the pace of the device
  double seconds_of_baseline = 0;  // mean over networks
  double seconds = 0;
  double exposed_part_of_baseline = 0;  // of an iteration, that nothing is computed in
  double gain = 0;
  double largest = 0;
};

// Models, then policies, then ratios (first 0), then algorithms.
std::vector<IterationGain> iteration_gains(const std::vector<Cluster>& networks,
                                           const IterationOptions& options);

// Where `gain` is reached, between two of the ratios by their logarithms.
struct ReachedAt {
  double ratio = 0;    // of communication to computation; 0: nowhere
  double largest = 0;  // gain of a network there
};
ReachedAt where_gain_is(const std::vector<IterationGain>& gains, const std::string& model,
                        const std::string& policy, const std::string& algorithm, double gain);

}  // namespace dear::studies::themis
