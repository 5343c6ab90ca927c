#pragma once

#include "studies/report/study_file.h"
#include "studies/sparse/findings.h"
#include "studies/sparse/sparse.h"
#include <string>
#include <vector>

namespace dear::studies::sparse {

// README.md.
std::string report_of(const SparseOptions& options, const Findings& findings);
// results.json: all numbers, by name.
std::string to_json(const SparseOptions& options, const Findings& findings);
// learning-rates.svg, stability.svg, speed.svg.
std::vector<studies::StudyFile> pictures_of(const SparseOptions& options, const Findings& findings);

}  // namespace dear::studies::sparse
