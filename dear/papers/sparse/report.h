#pragma once

#include <string>
#include <vector>

#include "dear/papers/sparse/findings.h"
#include "dear/papers/sparse/sparse.h"
#include "dear/study/study_file.h"

namespace dear::papers::sparse {

// README.md.
std::string report_of(const SparseOptions& options, const Findings& findings);
// results.json: all numbers, by name.
std::string to_json(const SparseOptions& options, const Findings& findings);
// learning-rates.svg, stability.svg, speed.svg.
std::vector<study::StudyFile> pictures_of(const SparseOptions& options, const Findings& findings);

}  // namespace dear::papers::sparse
