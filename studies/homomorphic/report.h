#pragma once

#include "studies/homomorphic/findings.h"
#include "studies/report/study_file.h"
#include <string>
#include <vector>

namespace dear::studies::homomorphic {

// README.md.
std::string report_of(const HomomorphicOptions& options, const Findings& findings);
// results.json: all numbers, by name.
std::string to_json(const HomomorphicOptions& options, const Findings& findings);
// recovery.svg, sizes.svg, throughput.svg, losses.svg.
std::vector<studies::StudyFile> pictures_of(const HomomorphicOptions& options, const Findings& findings);

}  // namespace dear::studies::homomorphic
