#pragma once

#include "studies/report/study_file.h"
#include "studies/sparse/accuracy.h"
#include "studies/sparse/speed.h"
#include <vector>

namespace dear::studies::sparse {

// The cases of the study of sparse communication (Eghlidi and Jaggi 2020, arXiv 2009.09271).
struct SparseOptions {
  AccuracyOptions accuracy{};
  std::vector<double> probabilities{};    // of the stability limits
  std::vector<Compression> measured{};    // whose speed counts
  std::vector<int> ranks{};               // of the speeds, the first for tables
  std::vector<double> bits_per_second{};  // bandwidths
  studies::Traffic traffic{};
  int rounds = 5;  // of measuring
};
// The whole study, which takes minutes; one of a few steps on a tiny task, whose accuracies mean nothing.
SparseOptions whole_study();
SparseOptions quick_study();

// Trains, and reports what the statements say beside what was seen: the report, pictures, all numbers as
// JSON. Always the same bytes for the same options and speeds, which measure_speeds() measures of
// `options.measured` and `options.ranks`. ConfigError for less than one seed.
std::vector<studies::StudyFile> study_of_sparse_communication(const SparseOptions& options,
                                                              const Speeds& speeds,
                                                              const studies::Progress& progress = {});

}  // namespace dear::studies::sparse
