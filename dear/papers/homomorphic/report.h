#pragma once

#include <string>
#include <vector>

#include "dear/papers/homomorphic/findings.h"
#include "dear/study/study_file.h"

namespace dear::papers::homomorphic {

// README.md.
std::string report_of(const HomomorphicOptions& options, const Findings& findings);
// results.json: all numbers, by name.
std::string to_json(const HomomorphicOptions& options, const Findings& findings);
// recovery.svg, sizes.svg, throughput.svg, losses.svg.
std::vector<study::StudyFile> pictures_of(const HomomorphicOptions& options, const Findings& findings);

}  // namespace dear::papers::homomorphic
