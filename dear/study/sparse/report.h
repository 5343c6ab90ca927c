#pragma once

#include <string>
#include <vector>

#include "dear/study/sparse/findings.h"
#include "dear/study/sparse/sparse.h"
#include "dear/study/study_file.h"

namespace dear::study::sparse {

// README.md.
std::string report_of(const SparseOptions& options, const Findings& findings);
// results.json: all numbers, by name.
std::string to_json(const SparseOptions& options, const Findings& findings);
// learning-rates.svg, stability.svg, speed.svg.
std::vector<StudyFile> pictures_of(const SparseOptions& options, const Findings& findings);

}  // namespace dear::study::sparse
