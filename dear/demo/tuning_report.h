#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "dear/fusion/size_candidates.h"
#include "dear/tune/tuner.h"

namespace dear::demo {

// What a run of tuning did, wherever it ran.
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
  bool settled = true;                          // or the job ended before
  std::string remark{};                         // what went wrong aside; "" when nothing did
  std::vector<tune::Expectation> expectations;  // by candidate; empty where the method has no model
  std::vector<double> true_seconds;             // by candidate; empty where nobody knows them
};

// The fastest candidate in truth, where that is known.
std::size_t optimum_of(const TuningReport& report);

// {model, cluster, ranks, policy, method, on, trials: [{candidate, bucket_bytes, buckets, seconds}], choice,
// optimum, expected: [...]}: see docs/formats.md. A candidate that is no size has no bucket_bytes.
nlohmann::ordered_json document_of(const TuningReport& report);
std::string to_json(const TuningReport& report);
// SVG: time by bucket size, the trials numbered, and where there are any what is expected in the end, with a
// band of one standard deviation, and the truth.
std::string plot(const TuningReport& report);

}  // namespace dear::demo
