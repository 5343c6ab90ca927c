#pragma once

#include <vector>

#include "dear/papers/homomorphic/learning.h"
#include "dear/papers/homomorphic/losslessness.h"
#include "dear/papers/homomorphic/recovery.h"
#include "dear/papers/homomorphic/sizes.h"
#include "dear/papers/homomorphic/throughput.h"
#include "dear/study/study_file.h"

namespace dear::papers::homomorphic {

// The cases of the study of lossless homomorphic compression (Li et al. 2024, arXiv 2402.07529).
struct HomomorphicOptions {
  RecoveryOptions recovery{};
  LosslessnessOptions losslessness{};
  SizeOptions sizes{};
  UnionOptions unions{};
  LearningOptions learning{};
  SpeedOptions speeds{};
  std::vector<double> bits_per_second{};  // bandwidths
  study::Traffic traffic{};
};
// The whole study, which takes minutes; one of few trials and steps, whose rates and losses mean little.
HomomorphicOptions whole_study();
HomomorphicOptions quick_study();

// Tries, trains, and reports what the statements say beside what was seen: the report, pictures, all numbers
// as JSON. Always the same bytes for the same options and speeds, which measure_speeds() measures of
// `options.speeds`. ConfigError for less than one seed.
std::vector<study::StudyFile> study_of_homomorphic_compression(const HomomorphicOptions& options,
                                                               const Speeds& speeds,
                                                               const study::Progress& progress = {});

}  // namespace dear::papers::homomorphic
