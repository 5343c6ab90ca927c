#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/cluster/network.h"

// Cluster files: what is known of the machines that a job runs on. JSON, versioned.
//   {"format": "dear-cluster", "version": 1, "name": "two ranks on one host", "ranks": 2,
//    "link": {"alpha_seconds": 5e-05, "beta_seconds_per_byte": 8e-09},
//    "fit": {"backend": "shm", "operation": "all-reduce", "dtype": "fp32", "model": "ring",
//            "rms_residual": 0.1, "worst_residual": 0.2,
//            "samples": [{"bytes": 4, "seconds": 0.0001, "modelled_seconds": 0.0001}, ...]}}
// "ranks" are those that were measured; any number can be simulated. "fit" says where the link comes from and
// may be left out; every other field is required, and no further one is allowed.
namespace dear {

// How the link was found: measured times, and those that the model gives for it.
struct FitRecord {
  struct Sample {
    std::int64_t bytes = 0;
    double seconds = 0;
    double modelled_seconds = 0;
    friend bool operator==(const Sample&, const Sample&) = default;
  };
  std::string backend;
  std::string operation;
  std::string dtype;
  std::string model;
  double rms_residual = 0;    // of the relative residuals
  double worst_residual = 0;  // the largest without its sign
  std::vector<Sample> samples;
  friend bool operator==(const FitRecord&, const FitRecord&) = default;
};

struct FlatCluster {
  std::string name;
  int ranks = 1;
  Link link;
  std::optional<FitRecord> fit{};
};

// ConfigError "FILE: link.alpha_seconds: expected a number, found a string: ..." (with the line for a syntax
// error).
FlatCluster read_cluster(const std::string& path);
FlatCluster parse_cluster(std::string_view json, const std::string& name_of_source);

// Atomically; ConfigError when it cannot be written.
void write_cluster(const FlatCluster& cluster, const std::string& path);
std::string to_json(const FlatCluster& cluster);

}  // namespace dear
