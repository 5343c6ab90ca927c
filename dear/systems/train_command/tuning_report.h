#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "dear/predict/tune/size_candidates.h"
#include "dear/predict/tune/tuner.h"

namespace dear::train_command {

// The outcome of tuning the bucket size of a job, simulated or trained.
struct TuningReport {
  std::string model;
  std::string cluster;
  int ranks = 1;
  std::string policy;
  std::string method;
  std::string where;  // "simulation", "training"
  SizeCandidates sizes;
  std::vector<tune::Observation> trials;  // in the order in which they were made
  std::size_t choice = 0;
  bool settled = true;                          // false when the job ended before
  std::string remark{};                         // an error beside the tuning; "" for none
  std::vector<tune::Expectation> expectations;  // by candidate; empty where the method has no model
  std::vector<double> true_seconds;             // by candidate; empty where they are not known
};

// The candidate with the least true time, where true_seconds is not empty.
std::size_t optimum_of(const TuningReport& report);

// JSON: {model, cluster, ranks, policy, method, on, trials: [{candidate, bucket_bytes, buckets, seconds}],
// choice, optimum, expected: [...]}: see docs/formats.md. A candidate that is no size has no bucket_bytes.
nlohmann::ordered_json document_of(const TuningReport& report);
std::string to_json(const TuningReport& report);
// Draws time against bucket size as SVG: the numbered trials and, where there are any, the expected times
// with a band of one standard deviation, and the true times.
std::string plot(const TuningReport& report);

}  // namespace dear::train_command
