#pragma once

#include "studies/homomorphic/learning.h"
#include "studies/homomorphic/losslessness.h"
#include "studies/homomorphic/recovery.h"
#include "studies/homomorphic/sizes.h"
#include "studies/homomorphic/throughput.h"
#include "studies/report/study_file.h"
#include <vector>

namespace dear::studies::homomorphic {

// The cases of the study of lossless homomorphic compression (Li et al. 2024, arXiv 2402.07529).
struct HomomorphicOptions {
  RecoveryOptions recovery{};
  LosslessnessOptions losslessness{};
  SizeOptions sizes{};
  UnionOptions unions{};
  LearningOptions learning{};
  SpeedOptions speeds{};
  std::vector<double> bits_per_second{};  // bandwidths
  studies::Traffic traffic{};
};
// The whole study, which takes minutes; one of few trials and steps, whose rates and losses mean little.
HomomorphicOptions whole_study();
HomomorphicOptions quick_study();

// Tries, trains, and reports what the statements say beside what was seen: the report, pictures, all numbers
// as JSON. Always the same bytes for the same options and speeds, which measure_speeds() measures of
// `options.speeds`. ConfigError for less than one seed.
std::vector<studies::StudyFile> study_of_homomorphic_compression(const HomomorphicOptions& options,
                                                                 const Speeds& speeds,
                                                                 const studies::Progress& progress = {});

}  // namespace dear::studies::homomorphic
